"""EDVR restores the center of its window at any size, and tells how far its offsets reach."""

import copy
import sys

import pytest
import torch

from vcycle.errors import PlanError, RecipeError
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.models.deform import OFFSET_LIMIT, DeformableConv, offset_magnitude
from vcycle.tasks.superres.models.edvr.network import EDVR
from vcycle.utils.extras import NotInstalledError

SMALL = {"window": 3, "channels": 8, "groups": 2, "front_blocks": 1, "back_blocks": 1, "head_channels": 8}


@pytest.fixture(params=[True, False], ids=["attention", "plain"])
def model(request):
    torch.manual_seed(0)
    model = EDVR(**SMALL, attention=request.param, zero_last=False)
    for module in model.modules():
        if isinstance(module, DeformableConv):
            torch.nn.init.normal_(module.offsets.weight, std=0.1)
    return model


def gradients(model, clip):
    model.zero_grad()
    model(clip).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(("height", "width"), [(16, 16), (32, 20), (33, 30), (3, 5)])
def test_any_size_is_restored_and_reaches_every_parameter(model, video, height, width):
    clip = video(2, 3, height, width)
    output = model(clip)
    assert output.shape == (2, 1, 3, 4 * height, 4 * width)
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(model, clip))


def test_it_starts_as_enlargement(video):
    clip = video(1, 3, 10, 14)
    enlarged = torch.nn.functional.interpolate(clip[:, 1], scale_factor=4, mode="bilinear")[:, None]
    assert torch.equal(EDVR(**SMALL)(clip), enlarged)


def test_checkpointing_leaves_output_and_gradients_as_they_are(model, video):
    clip = video(1, 3, 16, 24)
    sparing = copy.deepcopy(model)
    sparing.checkpointing = True
    assert torch.allclose(sparing(clip), model(clip), atol=1e-6)
    for kept, recomputed in zip(gradients(model, clip), gradients(sparing, clip), strict=True):
        assert torch.allclose(kept, recomputed, rtol=1e-4, atol=1e-7)


def test_channels_last_gives_the_same_frame(model, video):
    clip = video(2, 3, 16, 24)
    with torch.no_grad():
        expected = model(clip)
        last = clip.movedim(2, 4).contiguous().movedim(4, 2)
        assert torch.allclose(model.to(memory_format=torch.channels_last)(last), expected, atol=1e-5)


def test_autocast_gives_an_fp32_frame_near_that_without_it(model, video):
    clip = video(1, 3, 16, 16)
    exact = model(clip)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(clip)
    assert output.dtype == torch.float32
    assert torch.allclose(output, exact, atol=0.05)
    output.mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_deformable_layer_starts_as_a_plain_convolution_of_half_the_strength():
    layer = DeformableConv(16, 4)
    x, guide = torch.randn(2, 16, 9, 7), torch.randn(2, 16, 9, 7)
    plain = torch.nn.functional.conv2d(x, layer.weight, padding=1)
    assert torch.allclose(layer(x, guide), plain / 2, atol=1e-5)


def test_offsets_are_told_layer_by_layer_and_are_no_part_of_the_state(model, video):
    keys = set(model.state_dict())
    assert offset_magnitude(model) == {}
    model(video(1, 3, 16, 16))
    before = offset_magnitude(model)
    assert set(before) == {*(f"align.levels.{level}.deform" for level in range(3)), "align.deform"}
    assert all(0 < value < OFFSET_LIMIT and value.shape == () for value in before.values())
    with torch.no_grad():
        model.align.deform.offsets.bias[: 2 * 9 * 2] = 60
    model(video(1, 3, 16, 16))
    assert offset_magnitude(model)["align.deform"] > OFFSET_LIMIT
    assert set(model.state_dict()) == keys
    assert copy.deepcopy(model).state_dict().keys() == keys


def test_offsets_and_fusion_have_roles():
    model = EDVR(**SMALL)
    names = [name for name, _ in model.named_parameters()]
    offsets = MODELS.find("edvr_m").role_of(["offsets"])
    assert sum(offsets(name) == "offsets" for name in names) == 2 * 4  # a weight and a bias of four layers
    backbone = MODELS.find("edvr_m").role_of(["backbone"])
    assert {name.partition(".")[0] for name in names if backbone(name) is None} == {"fusion"}
    both = MODELS.find("edvr_m").role_of(["backbone", "offsets"])
    assert both("align.deform.offsets.bias") == "offsets"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 3}, "option 'scale' of model 'EDVR' is unknown; accepted: window, channels, groups, "),
        ({"window": 4}, "option 'window' of model 'EDVR' is 4; accepted: an odd whole number"),
        ({"channels": 12}, "channels is 12, groups is 8; accepted: groups that divide the channels"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        EDVR(**options)


def test_other_clips_than_its_window_are_refused(model, video):
    with pytest.raises(PlanError, match="5 frames for EDVR with a window of 3; accepted: 3"):
        model(video(1, 5, 16, 16))
    with pytest.raises(PlanError, match="16 × 2 pixels; accepted: plain windows of at least 3"):
        model(video(1, 3, 2, 16))
    with pytest.raises(PlanError, match="a mirrored clip of 16 × 16"):
        model(video(1, 3, 16, 16), mirrored=True)


def test_without_torchvision_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.ops", None)
    said = r"convolutions need torchvision, .* pip install torchvision torch==\d+\.\d+\.\d+$"
    with pytest.raises(NotInstalledError, match=said):
        EDVR(**SMALL)
