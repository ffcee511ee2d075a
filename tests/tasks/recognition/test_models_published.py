"""The published networks are those: parameters, state, layers, multiply-adds and how they start."""

import importlib.util
import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from vcycle.errors import PlanError, RecipeError
from vcycle.plan import Baseline, StepDecay, multigrid
from vcycle.tasks.classification.head import fully_convolutional
from vcycle.tasks.recognition.models import MODELS, build_model, names, needs
from vcycle.tasks.recognition.models.nonlocal_block import NonLocalBlock
from vcycle.tasks.recognition.models.resnet3d.network import ResNet3d
from vcycle.tasks.recognition.models.slowfast.network import SlowFast, slow_frames

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


class Published(NamedTuple):
    """A network as its authors' builder makes it for 400 classes, and its multiply-adds for one clip."""

    frames: int
    parameters: int
    keys: int
    batchnorms: int
    gmacs_224: float | None
    gmacs_256: float | None
    options: Mapping = MappingProxyType({})


# Counted on the models of PySlowFast and pytorchvideo. The figures at 256 are those of the fully convolutional test.
# I3D R101 is in neither zoo with a count: its state follows from R50's and 17 blocks more.
PUBLISHED = {
    "slowfast_4x16_r50": Published(32, 34_480_216, 662, 110, 27.64, 36.10),
    "slowfast_8x8_r50": Published(32, 34_566_488, 662, 110, 50.31, 65.71),
    "slowfast_16x8_r50": Published(64, 34_566_488, 662, 110, 100.6, 131.4),
    "slowfast_8x8_r101": Published(32, 62_826_968, 1274, 212, 96.40, 125.91),
    "slowfast_16x8_r101_50_50": Published(64, 53_774_808, 1274, 212, 163.1, 213.0),
    "i3d_r50": Published(8, 28_043_472, 320, 53, 28.41, 37.10),
    "i3d_r101": Published(8, 51_754_192, 320 + 17 * 18, 53 + 17 * 3, None, None),
    "i3d_nl_r50": Published(8, 35_401_936, 385, 58, 36.54, 48.92, {"nonlocal_form": "softmax"}),
    "slow_r50": Published(8, 32_454_096, 320, 53, 41.74, 54.52),
    "c2d_r50": Published(8, 24_327_632, 320, 53, 19.49, 25.46),
}
TESTED_LARGER = ("slowfast_4x16_r50", "i3d_nl_r50", "c2d_r50")  # one of each kind: counting takes seconds
TINY_WIDTHS = {"stem_width": 8, "widths": (8, 8, 16, 16)}


@cache
def on_meta(name, classes=400, **options):
    """A model to look at: never changed, so that it is built once for all tests."""
    with torch.device("meta"):
        return build_model(name, classes, **options).eval()


@cache
def gmacs(model, frames, side):
    """Billions of multiply-adds for one clip; larger ones than 224 pixels as in the fully convolutional test."""
    larger = fully_convolutional(model, 224) if side > 224 else nullcontext()
    with torch.no_grad(), larger, FlopCounterMode(display=False) as counter:
        model(torch.empty((1, 3, frames, side, side), device="meta"))
    return counter.get_total_flops() / 2e9


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def batchnorms(model):
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def extents(stage):
    """Extents in time of the first convolutions of a stage's blocks."""
    return [block.branch[0][0].kernel_size[0] for block in stage if not isinstance(block, NonLocalBlock | nn.MaxPool3d)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_half_of_the_features_are_dropped_before_the_classifier(name):
    """As PySlowFast's configurations for Kinetics have it (`MODEL.DROPOUT_RATE`). No parameter tells."""
    assert [module.p for module in on_meta(name).modules() if isinstance(module, nn.Dropout)] == [0.5]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_state_are_the_published_ones(name):
    published = PUBLISHED[name]
    model = on_meta(name)
    assert count(model) == published.parameters
    assert len(model.state_dict()) == published.keys
    assert len(batchnorms(model)) == published.batchnorms


@pytest.mark.parametrize("name", [name for name, published in PUBLISHED.items() if published.gmacs_224])
def test_multiply_adds_are_the_published_ones(name):
    published = PUBLISHED[name]
    model = on_meta(name, **published.options)
    rounding = 0.05 if published.gmacs_224 > 100 else 0.01
    assert gmacs(model, published.frames, 224) == pytest.approx(published.gmacs_224, abs=rounding)
    if name in TESTED_LARGER:
        assert gmacs(model, published.frames, 256) == pytest.approx(published.gmacs_256, abs=rounding)


def test_the_dot_product_form_takes_fewer_multiply_adds_for_the_same_function():
    """Without a softmax between them, the products are multiplied in the cheaper order."""
    assert gmacs(on_meta("i3d_nl_r50"), 8, 224) < gmacs(on_meta("i3d_nl_r50", nonlocal_form="softmax"), 8, 224) - 1.5


@pytest.mark.parametrize(("classes", "parameters"), [(174, 34_045_558), (157, 34_006_373)])
def test_slowfast_16x8_has_the_published_size_on_ssv2_and_charades(classes, parameters):
    assert count(on_meta("slowfast_16x8_r50", classes)) == parameters


@pytest.mark.parametrize(
    ("name", "stem", "stages"),
    [
        ("i3d_r50", 5, [[3, 3, 3], [3, 1, 3, 1], [3, 1, 3, 1, 3, 1], [1, 3, 1]]),
        ("slow_r50", 1, [[1] * 3, [1] * 4, [3] * 6, [3] * 3]),
        ("c2d_r50", 1, [[1] * 3, [1] * 4, [1] * 6, [1] * 3]),
    ],
)
def test_networks_of_one_pathway_see_time_where_the_published_ones_do(name, stem, stages):
    model = on_meta(name)
    assert model.stem[0][0].kernel_size == (stem, 7, 7)
    assert model.stem[0][0].stride == (1, 2, 2)
    assert [extents(stage) for stage in model.stages] == stages
    pools = [module for module in model.stages.modules() if isinstance(module, nn.MaxPool3d)]
    assert [pool.kernel_size for pool in pools] == ([] if name == "slow_r50" else [(2, 1, 1)])


@pytest.mark.parametrize(
    ("name", "alpha", "fusion", "slow", "fast"),
    [
        ("slowfast_4x16_r50", 8, 5, [[1] * 3, [1] * 4, [3] * 6, [3] * 3], [[3] * 3, [3] * 4, [3] * 6, [3] * 3]),
        ("slowfast_8x8_r50", 4, 7, [[1] * 3, [1] * 4, [3] * 6, [3] * 3], [[3] * 3, [3] * 4, [3] * 6, [3] * 3]),
        ("slowfast_8x8_r101", 4, 5, [[1] * 3, [1] * 4, [3] * 23, [3] * 3], [[3] * 3, [3] * 4, [3] * 23, [3] * 3]),
        (
            *("slowfast_16x8_r101_50_50", 4, 5),
            [[1] * 3, [1] * 4, [3] * 6 + [1] * 17, [3] * 3],
            [[3] * 3, [3] * 4, [3] * 6 + [1] * 17, [3] * 3],
        ),
    ],
)
def test_slowfast_sees_time_where_the_published_one_does(name, alpha, fusion, slow, fast):
    model = on_meta(name)
    assert (model.slow_stem[0][0].kernel_size, model.fast_stem[0][0].kernel_size) == ((1, 7, 7), (5, 7, 7))
    assert [extents(stage) for stage in model.slow_stages] == slow
    assert [extents(stage) for stage in model.fast_stages] == fast
    fusions = [fuse[0] for fuse in model.fusions]
    assert [conv.kernel_size for conv in fusions] == [(fusion, 1, 1)] * 4
    assert [conv.stride for conv in fusions] == [(alpha, 1, 1)] * 4
    assert [stage[0].branch[0][0].in_channels for stage in model.slow_stages] == [80, 320, 640, 1280]


@pytest.mark.parametrize("name", ["slowfast_8x8_r50", "i3d_r50"])
def test_space_is_strided_by_the_second_convolution_and_time_by_none(name):
    model = on_meta(name)
    stages = [*model.slow_stages, *model.fast_stages] if name.startswith("slowfast") else model.stages
    for index, stage in enumerate(stages):
        space = 1 if index % 4 == 0 else 2
        assert [layer[0].stride for layer in stage[0].branch] == [(1, 1, 1), (1, space, space), (1, 1, 1)]
        assert stage[0].shortcut[0].stride == (1, space, space)
        assert all(
            isinstance(block.shortcut, nn.Identity) for block in stage[1:] if not isinstance(block, nn.MaxPool3d)
        )


def test_non_local_blocks_stand_where_the_published_ones_do():
    model = on_meta("i3d_nl_r50")
    found = [name for name, module in model.named_modules() if isinstance(module, NonLocalBlock)]
    assert found == [f"stages.{stage}.nonlocal{index}" for stage, index in ((1, 1), (1, 3), (2, 1), (2, 3), (2, 5))]


@pytest.mark.parametrize(
    ("name", "zeros"),
    [("slowfast_8x8_r50", 32), ("slowfast_8x8_r101", 66), ("i3d_r50", 16), ("i3d_nl_r50", 21), ("c2d_r50", 16)],
)
def test_blocks_start_as_the_identity_and_all_else_as_published(name, zeros):
    torch.manual_seed(0)
    model = build_model(name, 50, **TINY_WIDTHS)
    gammas = [layer.weight for layer in batchnorms(model)]
    assert sum(not gamma.any() for gamma in gammas) == zeros
    assert all((gamma == 1).all() for gamma in gammas if gamma.any())
    assert all(not module.last_norm.weight.any() for module in model.modules() if hasattr(module, "last_norm"))
    assert all(not value.any() for key, value in model.named_parameters() if key.endswith("bias"))
    assert all((layer.eps, layer.momentum) == (1e-5, 0.1) for layer in batchnorms(model))
    assert model.head.projection.weight.std().item() == pytest.approx(0.01, rel=0.1)
    stem = (model.slow_stem if name.startswith("slowfast") else model.stem)[0][0]
    fan_out = stem.weight[:, 0].numel()
    assert stem.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("frames", "alpha", "expected"),
    [
        (32, 4, [0, 4, 8, 13, 17, 22, 26, 31]),
        (8, 4, [0, 7]),
        (16, 4, [0, 5, 10, 15]),
        (32, 8, [0, 10, 20, 31]),
        (8, 8, [0]),
        (64, 4, [0, 4, 8, 12, 16, 21, 25, 29, 33, 37, 42, 46, 50, 54, 58, 63]),
    ],
)
def test_the_slow_pathway_sees_the_published_frames(frames, alpha, expected):
    """From PySlowFast: ``linspace(0, T - 1, T // alpha).long()``."""
    assert slow_frames(frames, alpha) == expected


@pytest.mark.parametrize(
    ("name", "frames", "least", "message"),
    [
        ("slowfast_4x16_r50", 16, 4, "4 frames, the model needs at least 8"),
        ("slowfast_8x8_r50", 8, 2, "2 frames, the model needs at least 4"),
        ("i3d_r50", 4, 1, "1 frames, the model needs at least 2"),
    ],
)
def test_a_plan_names_the_stage_whose_frames_are_too_few(name, frames, least, message):
    baseline = Baseline(
        batch=8, frames=frames, size=224, clips=800, epochs=4, lr=0.1, decay=StepDecay(milestones=(2, 3), gamma=0.1)
    )
    with pytest.raises(PlanError, match=rf"stage '.+': model '{name}' cannot take the shape {least}×.*{message}"):
        multigrid(baseline).require(needs(name), name)


def test_the_defaults_of_slowfast_are_its_r50_preset():
    assert str(on_meta("slowfast_8x8_r50", 7)) == str(SlowFast(7).eval())


def test_a_list_of_extents_is_gone_through_over_again():
    model = ResNet3d(2, widths=(4, 4), blocks=(5, 2), temporal_kernels=((3, 1), (1, 3, 3)))
    assert [[block.branch[0][0].kernel_size[0] for block in stage] for stage in model.stages] == [
        [3, 1, 3, 1, 3],
        [1, 3],
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nonlocal_form": "gaussian"}, "'nonlocal_form' of model 'i3d_nl_r50' is 'gaussian'; accepted: dot, softmax"),
        ({"block": "dense"}, "'block' of model 'i3d_nl_r50' is 'dense'; accepted: basic, bottleneck"),
        ({"nonlocal_every": (0, 2)}, r"nonlocal_every \(0, 2\) differ in length"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        build_model("i3d_nl_r50", 2, **TINY_WIDTHS, **options)


def asked(need):
    """What a model asks of a shape, in words."""
    words = [f"T a multiple of {need.frames_multiple}"] if need.frames_multiple > 1 else []
    words += [f"T ≥ {need.min_frames}"] if need.min_frames > need.frames_multiple else []
    words += [f"side a multiple of {need.size_multiple}"] if need.size_multiple > 1 else []
    words += [f"side ≥ {need.min_size}"] if need.min_size > need.size_multiple else []
    return ", ".join(words) or "anything"


def test_the_page_of_models_has_the_true_numbers():
    """A row is a name, parameters in millions, multiply-adds, the clip that they are for, and what the model asks."""
    row = re.compile(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \| (\d+×\d+×\d+) \| ([^|]*) \|", re.MULTILINE)
    rows = row.findall(PAGE.read_text(encoding="utf-8"))
    assert [name for name, *_ in rows] == list(names())
    for name, parameters, multiply_adds, clip, needed in rows:
        frames, side, _ = map(int, clip.split("×"))
        if MODELS.find(name).downloads:
            pytest.importorskip("torchvision")
        if name.startswith("videomae") and importlib.util.find_spec("transformers") is None:
            continue
        model = on_meta(name)
        expected = (f"{count(model) / 1e6:.2f}", f"{gmacs(model, frames, side):.2f}", asked(needs(name)))
        assert (parameters, multiply_adds, needed) == expected, name
        assert name not in PUBLISHED or (frames, side) == (PUBLISHED[name].frames, 224)
