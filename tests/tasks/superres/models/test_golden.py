"""The networks are the published ones: counts, work and forwards, from the facts on super-resolution, section 3."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vcycle.tasks.superres.models.basicvsr.flow import SpyNet, warp
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR
from vcycle.tasks.superres.models.deform import DeformableConv, deform_flops
from vcycle.tasks.superres.models.edvr.network import EDVR


def agrees(x, mean, std, *values):
    """Mean, standard deviation, and the elements at the start, a third, a half and the end."""
    flat = x.flatten()
    count = len(flat)
    got = [x.mean(), x.std(), flat[0], flat[count // 3], flat[count // 2], flat[count - 1]]
    return [float(v) for v in got] == pytest.approx([mean, std, *values], abs=1e-5)  # summed in another order


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize(
    ("build", "options", "parameters", "tensors"),
    [
        (SpyNet, {}, 1_440_300, 62),
        (BasicVSR, {}, 6_291_311, 316),
        (BasicVSR, {"blocks": 15}, 4_075_631, 196),
        (BasicVSR, {"blocks": 10}, 3_337_071, 156),
        (BasicVSR, {"blocks": 7}, 2_893_935, 132),
        (EDVR, {}, 3_300_131, 144),
        (EDVR, {"attention": False}, 2_996_259, 120),
        (EDVR, {"window": 7}, 3_316_515, 144),
        (EDVR, {"channels": 128, "back_blocks": 40}, 20_633_827, 264),
    ],
)
def test_parameters_and_tensors_are_as_many_as_published(build, options, parameters, tensors):
    with torch.device("meta"):
        model = build(**options)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(model.state_dict()) == tensors


@pytest.mark.parametrize(
    ("build", "options", "frames", "size", "work"),
    [
        (BasicVSR, {"blocks": 7}, 7, 32, 43.30),
        (EDVR, {}, 5, 32, 17.31),
        (EDVR, {}, 5, 64, 69.24),
        (EDVR, {"window": 7}, 7, 64, 89.74),
    ],
)
def test_work_is_as_published(build, options, frames, size, work):
    with torch.device("meta"):
        model, clip = build(**options), torch.empty(1, frames, 3, size, size)
    with torch.enable_grad(), FlopCounterMode(display=False, custom_mapping=deform_flops()) as counter:
        output = model(clip)
        assert counter.get_total_flops() / 1e9 == pytest.approx(work, abs=0.005)
        output.sum().backward()
    assert counter.get_total_flops() / 1e9 == pytest.approx(3 * work, rel=5e-3)


def test_flow_is_the_published_networks(golden, video):
    net, clip = golden(SpyNet()), video(1, 2, 64, 64)
    for height, width, expected in (
        (64, 64, (-0.06301381, 0.08554098, 0.02728000, 0.04156122, -0.15456925, -0.13613199)),
        (48, 40, (-0.04882660, 0.06510708, 0.01878122, 0.00878099, -0.10779116, -0.12319239)),
        (32, 32, (-0.06542817, 0.08428722, 0.01392253, 0.02259298, -0.14608152, -0.17234652)),
    ):
        crop = clip[..., :height, :width]
        assert agrees(net(crop[:, 0], crop[:, 1]), *expected)


def test_warping_is_the_published_one(video):
    frame = video(1, 1, 64, 64)[:, 0]
    i, j = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    flow = torch.stack((2 * torch.sin(0.1 * j), 1.5 * torch.cos(0.1 * i)))[None]
    first = (0.59667867, 0.98008835, 0.03181119)
    assert agrees(warp(frame, flow), 0.48798033, 0.35382257, *first, 0.0)
    assert agrees(warp(frame, flow, "border"), 0.49994863, 0.35215073, *first, 0.31972783)


@pytest.mark.parametrize(
    ("frames", "size", "expected"),
    [
        (3, 64, (0.50726974, 0.42159331, 0.38634204, 0.86469245, 0.32856186, 0.09413924)),
        (3, 32, (0.51005615, 0.47676629, 0.39089835, 0.86633508, 0.19238669, 0.86320827)),
        (1, 64, (0.50619327, 0.39298647, 0.27388842, 1.33544237, 0.07171192, 0.49593543)),
    ],
)
def test_basicvsr_gives_the_published_networks_frames(golden, video, frames, size, expected):
    model = golden(BasicVSR(blocks=2))
    output = model(video(1, frames, size, size))
    assert output.shape == (1, frames, 3, 4 * size, 4 * size)
    assert agrees(output, *expected)


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        (True, (0.51266951, 0.35208750, 1.00369204, 0.84449346, 0.01902938, 0.92558928)),
        (False, (0.51249746, 0.35198643, 1.00134801, 0.83826191, 0.01898551, 0.92430217)),
    ],
)
def test_edvr_gives_the_published_networks_center_frame(golden, video, attention, expected):
    output = golden(EDVR(attention=attention))(video(1, 5, 32, 32))
    assert output.shape == (1, 1, 3, 128, 128)
    assert agrees(output, *expected)


def test_a_deformable_layer_gives_the_published_ones_features(golden, video):
    layer = DeformableConv(64)
    theirs = {key: key.replace("offsets", "conv_offset") for key in layer.state_dict()}
    x = video(1, 1, 16, 16)[:, 0].repeat(1, 22, 1, 1)[:, :64]
    expected = (0.00039580, 0.12188593, -0.00866364, -0.11422363, -0.04171834, -0.25841896)
    assert agrees(golden(layer, theirs)(x, x), *expected)
