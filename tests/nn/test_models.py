"""Every model of the catalog keeps the same contract: clips of any shape that it can take in, logits out."""

import inspect
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from vcycle.errors import PlanError, RecipeError
from vcycle.nn import SubBatchNorm, build, convert_batchnorm, names, needs
from vcycle.nn.catalog import options_of
from vcycle.nn.models.slowfast import SlowFast, slow_frames
from vcycle.plan import Shape

CLASSES = 7
TINY = ("r3d_tiny", "r3d_small", "slowfast_tiny")
LARGE = ("slowfast_8x8_r50", "r3d_18", "s3d", "swin3d_t")  # one of each kind goes through more than one shape
TORCHVISION = tuple(name for name in names() if "weights" in options_of(name))
SHAPES = [Shape(8, 23, 23), Shape(16, 32, 32), Shape(4, 16, 24), Shape(16, 45, 45)]


def build_or_skip(name, **options):
    """A model; the big ones on the meta device, where shapes and gradients cost nothing."""
    if name in TORCHVISION:
        pytest.importorskip("torchvision")
    with torch.device("cpu" if name in TINY else "meta"):
        return build(name, CLASSES, **options)


def clips(model, batch, shape, channels=3):
    """Random clips on the model's device."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    return torch.randn((batch, channels, *shape), generator=generator).to(device)


def batchnorms(model):
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def work(model, batch, shape):
    """Counted operations of a forward and a backward, on the meta device."""
    model = model.to("meta")
    with FlopCounterMode(display=False) as counter:
        model(torch.empty((batch, 3, *shape), device="meta")).sum().backward()
    return counter.get_total_flops()


def shapes_of(name):
    asked = needs(name)
    if asked.fixed is not None:
        return [asked.fixed]
    least = Shape(asked.min_frames, asked.min_size, asked.min_size)
    shapes = [least, *(shape for shape in SHAPES if asked.refusal(shape) is None)]
    return shapes[: 5 if name in TINY else 2 if name in LARGE else 1]


@pytest.mark.parametrize("name", names())
def test_any_shape_it_can_take_gives_logits_and_gradients_everywhere(name):
    model = convert_batchnorm(build_or_skip(name), bn_batch=2)
    for shape in shapes_of(name):
        logits = model(clips(model, 4, shape))
        assert logits.shape == (4, CLASSES)
        logits.square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        model.zero_grad()
    assert model.eval()(clips(model, 1, shapes_of(name)[0])).shape == (1, CLASSES)


@pytest.mark.parametrize("name", names())
def test_conversion_reaches_every_batchnorm(name):
    model = build_or_skip(name)
    layers = batchnorms(model)
    convert_batchnorm(model)
    assert batchnorms(model) == layers
    assert all(isinstance(layer, SubBatchNorm) for layer in layers)


@pytest.mark.parametrize("name", TINY)
def test_one_clip_trains(name):
    model = convert_batchnorm(build(name, CLASSES))
    logits = model(clips(model, 1, Shape(8, 32, 32)))
    logits.sum().backward()
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", TINY)
def test_channels_last_gives_the_same_logits(name):
    model = build(name, CLASSES).eval()
    x = clips(model, 2, Shape(8, 24, 24))
    expected = model(x)
    last = model.to(memory_format=torch.channels_last_3d)(x.contiguous(memory_format=torch.channels_last_3d))
    torch.testing.assert_close(last, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TINY)
def test_a_few_steps_fit_a_few_clips(name):
    torch.manual_seed(0)
    model = convert_batchnorm(build(name, 2), bn_batch=2)
    x, labels = clips(model, 4, Shape(4, 16, 16)), torch.tensor([0, 1, 0, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(12):
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("name", TINY)
def test_work_follows_voxels(name):
    model = convert_batchnorm(build(name, CLASSES))
    full = work(model, 2, (16, 64, 64))
    for frames, size, tolerance in ((8, 64, 0), (4, 64, 0), (16, 32, 0), (8, 32, 0), (16, 45, 0.15), (4, 45, 0.15)):
        expected = 16 * 64 * 64 / (frames * size * size)
        ratio = full / work(model, 2, (frames, size, size))
        assert ratio == pytest.approx(expected, rel=0.01 + tolerance)


@pytest.mark.parametrize("name", TINY)
def test_residual_blocks_start_as_the_identity_unless_told_otherwise(name):
    zeros = [not layer.weight.any() for layer in batchnorms(build(name, CLASSES))]
    assert any(zeros)
    assert all(layer.weight.all() for layer in batchnorms(build(name, CLASSES, zero_gamma=False)))


@pytest.mark.parametrize(
    ("name", "parameters", "gmacs"),
    [("slowfast_8x8_r50", 34_566_488, 50.31), ("slowfast_4x16_r50", 34_480_216, 27.64)],
)
def test_slowfast_r50_is_the_published_network(name, parameters, gmacs):
    """Parameters, BatchNorms and multiply-adds at 32x224x224 of the reference implementation's zoo."""
    with torch.device("meta"):
        model = build(name, 400).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert len(batchnorms(model)) == 110
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.empty((1, 3, 32, 224, 224), device="meta"))
    assert counter.get_total_flops() / 2e9 == pytest.approx(gmacs, abs=0.01)


@pytest.mark.parametrize(
    ("frames", "alpha", "expected"),
    [
        (32, 4, [0, 4, 8, 13, 17, 22, 26, 31]),
        (8, 4, [0, 7]),
        (16, 4, [0, 5, 10, 15]),
        (32, 8, [0, 10, 20, 31]),
        (8, 8, [0]),
    ],
)
def test_the_slow_pathway_sees_the_published_frames(frames, alpha, expected):
    """From PySlowFast: ``linspace(0, T - 1, T // alpha).long()``."""
    assert slow_frames(frames, alpha) == expected


def test_slowfast_refuses_frames_that_alpha_does_not_divide():
    with pytest.raises(PlanError, match="got 6 frames"):
        build("slowfast_tiny", CLASSES)(torch.zeros(1, 3, 6, 16, 16))


def test_slowfast_takes_bottlenecks_and_other_ratios():
    options = {"block": "bottleneck", "alpha": 2, "beta_inverse": 8, "fusion_ratio": 1, "stem_pool": True}
    model = build("slowfast_tiny", CLASSES, **options)
    assert model(clips(model, 2, Shape(6, 32, 32))).shape == (2, CLASSES)
    assert needs("slowfast_tiny", **options).frames_multiple == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (8, 16)}, "differ in length"),
        ({"block": "dense"}, "accepted: basic, bottleneck"),
        ({"stem_width": 18}, "not a multiple of beta_inverse"),
    ],
)
def test_slowfast_refuses_options_that_do_not_fit(options, message):
    with pytest.raises(RecipeError, match=message):
        build("slowfast_tiny", CLASSES, **options)


def test_resnet3d_refuses_lists_of_different_lengths():
    with pytest.raises(RecipeError, match="differ in length"):
        build("r3d_tiny", CLASSES, widths=(8, 16))


def test_resnet3d_strides_time_where_asked():
    model = build("r3d_tiny", CLASSES, temporal_strides=(1, 2, 2))
    x = clips(model, 2, Shape(8, 16, 16))
    assert model.stages(model.stem(x)).shape[2:] == (2, 2, 2)
    assert model(x).shape == (2, CLASSES)


@pytest.mark.parametrize("name", TINY)
def test_clips_of_other_channels_and_dropout_are_options(name):
    model = build(name, CLASSES, channels_in=1, dropout=0.5)
    assert model(clips(model, 2, Shape(4, 16, 16), channels=1)).shape == (2, CLASSES)
    assert any(isinstance(module, nn.Dropout) and module.p == 0.5 for module in model.modules())


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_models_below_what_they_need_fail_and_so_the_need_is_true(name):
    asked = needs(name)
    model = build_or_skip(name).eval()
    below = []
    if asked.min_frames > 1:
        below.append((asked.min_frames - 1, 64, 64))
    if asked.min_size > 1:
        below.append((16, asked.min_size - 1, asked.min_size - 1))
    if asked.fixed is not None:
        below += [(8, 224, 224), (16, 158, 158)]
    for shape in below:
        with pytest.raises((RuntimeError, ValueError)):
            model(clips(model, 1, shape))


def test_torchvision_weights_replace_the_head_unless_the_classes_agree(monkeypatch):
    models = pytest.importorskip("torchvision.models")
    get_model = models.get_model
    monkeypatch.setattr(models, "get_model", lambda name, weights: get_model(name, weights=None))
    with torch.device("meta"):
        for name in TORCHVISION:
            if "mvit" not in name:
                model = build(name, CLASSES, weights="KINETICS400_V1").eval()
                assert model(clips(model, 1, (16, 64, 64))).shape == (1, CLASSES)
        assert build("r3d_18", 400, weights="KINETICS400_V1").fc.out_features == 400


def test_unknown_torchvision_weights_are_refused_with_the_known_ones():
    pytest.importorskip("torchvision")
    with pytest.raises(RecipeError, match="accepted: KINETICS400_V1"):
        build("r3d_18", CLASSES, weights="KINETICS")


def test_weights_that_cannot_be_loaded_are_an_error_of_one_line(monkeypatch):
    models = pytest.importorskip("torchvision.models")

    def no_network(name, weights):
        raise OSError("no route to host")

    monkeypatch.setattr(models, "get_model", no_network)
    with pytest.raises(RecipeError, match="could not be loaded: no route"):
        build("r3d_18", CLASSES, weights="KINETICS400_V1")


def test_torchvision_dropout_is_an_option_where_there_is_one():
    pytest.importorskip("torchvision")
    with torch.device("meta"):
        assert build("s3d", CLASSES, dropout=0.4).classifier[0].p == 0.4
        with pytest.raises(RecipeError, match="no dropout"):
            build("r3d_18", CLASSES, dropout=0.4)


def test_missing_torchvision_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torchvision.models", None)
    with pytest.raises(RecipeError, match="pip install torchvision"):
        build("r3d_18", CLASSES)


@pytest.mark.parametrize(
    ("name", "builder"),
    [
        ("r3d_tiny", "resnet3d:ResNet3d"),
        ("slowfast_tiny", "slowfast:SlowFast"),
        ("r3d_18", "torchvision:torchvision_model"),
    ],
)
def test_the_catalog_knows_exactly_the_options_that_a_builder_takes(name, builder):
    module, attribute = builder.split(":")
    taken = inspect.signature(getattr(import_module(f"vcycle.nn.models.{module}"), attribute)).parameters
    assert set(options_of(name)) == set(taken) - {"classes", "name"}


def test_the_defaults_of_slowfast_are_its_r50_preset():
    with torch.device("meta"):
        assert str(SlowFast(CLASSES)) == str(build("slowfast_8x8_r50", CLASSES))
