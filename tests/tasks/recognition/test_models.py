"""Every model of the catalog keeps the same contract: clips of any shape that it can take in, logits out.

The published networks are built narrow and shallow here, each kind of layer in them; test_models_published.py builds
them whole.
"""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from vcycle.errors import PlanError, RecipeError
from vcycle.nn import SubBatchNorm, convert_batchnorm
from vcycle.plan import Shape
from vcycle.tasks.classification.torchvision_models import SizedOptions
from vcycle.tasks.classification.torchvision_network import torchvision_model
from vcycle.tasks.recognition.models import MODELS, build_model, names, needs

CLASSES = 7
TINY = ("r3d_tiny", "r3d_small", "slowfast_tiny")
TORCHVISION = tuple(name for name in names() if MODELS.find(name).downloads)
TRANSFORMERS = tuple(name for name in names() if name.startswith("videomae"))
LIBRARIES = dict.fromkeys(TORCHVISION, "torchvision") | dict.fromkeys(TRANSFORMERS, "transformers")
PUBLISHED = tuple(name for name in names() if name not in (*TINY, *LIBRARIES))
SMALL = {name: {} for name in TINY} | {
    name: {"stem_width": 8, "widths": (8, 8, 16, 16), "blocks": (1, 2, 2, 1)} for name in PUBLISHED
}
"""Options that make each of our models one that trains in a moment."""
MORE_SHAPES = ("r3d_18", "swin3d_t")  # of torchvision's, one of each kind goes through more than one shape
SHAPES = [Shape(8, 23, 23), Shape(4, 16, 24), Shape(16, 32, 32)]


def build_or_skip(name, **options):
    """A model; other libraries' on the meta device, where shapes and gradients cost nothing."""
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    with torch.device("meta" if name in LIBRARIES else "cpu"):
        return build_model(name, CLASSES, **SMALL.get(name, {}), **options)


def clips(model, batch, shape, channels=3):
    """Random clips on the model's device."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    return torch.randn((batch, channels, *shape), generator=generator).to(device)


def awake(model):
    """The model with no block that starts as the identity."""
    for layer in batchnorms(model):
        nn.init.ones_(layer.weight)
    return model


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
    least = Shape(asked.min_frames, asked.min_size, asked.min_size)
    shapes = [least, *(shape for shape in SHAPES if asked.violation(shape) is None)]
    return shapes[: 4 if name in TINY else 2 if name in (*PUBLISHED, *MORE_SHAPES) else 1]


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


@pytest.mark.parametrize("name", ["slowfast_8x8_r50", "i3d_nl_r50"])
def test_the_whole_published_network_trains_too(name):
    with torch.device("meta"):
        model = build_model(name, CLASSES)
    model(torch.empty((2, 3, 8, 32, 40), device="meta")).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_one_clip_trains(name):
    model = convert_batchnorm(build_or_skip(name))
    logits = model(clips(model, 1, Shape(8, 40, 40)))
    logits.sum().backward()
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", SMALL)
def test_channels_last_gives_the_same_logits(name):
    model = awake(build_or_skip(name).eval())
    x = clips(model, 2, Shape(8, 40, 40))
    expected = model(x)
    last = model.to(memory_format=torch.channels_last_3d)(x.contiguous(memory_format=torch.channels_last_3d))
    torch.testing.assert_close(last, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_autocast_gives_nearly_the_same_logits_and_gradients_in_the_dtype_of_the_weights(name):
    model = awake(convert_batchnorm(build_or_skip(name), bn_batch=2).eval())
    x = clips(model, 2, Shape(16, 40, 40))
    expected = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x)
        logits.sum().backward()
    assert logits.dtype == torch.bfloat16
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("name", TINY)
def test_a_few_steps_fit_a_few_clips(name):
    torch.manual_seed(0)
    model = convert_batchnorm(build_model(name, 2), bn_batch=2)
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
    model = convert_batchnorm(build_model(name, CLASSES))
    full = work(model, 2, (16, 64, 64))
    for frames, size, tolerance in ((8, 64, 0), (16, 32, 0), (4, 32, 0), (8, 45, 0.15)):
        expected = 16 * 64 * 64 / (frames * size * size)
        ratio = full / work(model, 2, (frames, size, size))
        assert ratio == pytest.approx(expected, rel=0.01 + tolerance)


@pytest.mark.parametrize("name", SMALL)
def test_residual_blocks_start_as_the_identity_unless_told_otherwise(name):
    zeros = [not layer.weight.any() for layer in batchnorms(build_or_skip(name))]
    assert any(zeros)
    assert all(layer.weight.all() for layer in batchnorms(build_or_skip(name, zero_gamma=False)))


def test_slowfast_refuses_frames_that_alpha_does_not_divide():
    with pytest.raises(PlanError, match="got 6 frames"):
        build_model("slowfast_tiny", CLASSES)(torch.zeros(1, 3, 6, 16, 16))


def test_slowfast_takes_bottlenecks_and_other_ratios():
    options = {"block": "bottleneck", "alpha": 2, "beta_inverse": 8, "fusion_ratio": 1, "stem_pool": True}
    model = build_model("slowfast_tiny", CLASSES, **options)
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
        build_model("slowfast_tiny", CLASSES, **options)


def test_resnet3d_refuses_lists_of_different_lengths():
    with pytest.raises(RecipeError, match="differ in length"):
        build_model("r3d_tiny", CLASSES, widths=(8, 16))


def test_resnet3d_strides_time_where_asked():
    model = build_model("r3d_tiny", CLASSES, temporal_strides=(1, 2, 2))
    x = clips(model, 2, Shape(8, 16, 16))
    assert model.stages(model.stem(x)).shape[2:] == (2, 2, 2)
    assert model(x).shape == (2, CLASSES)


@pytest.mark.parametrize("name", TINY)
def test_clips_of_other_channels_and_dropout_are_options(name):
    model = build_model(name, CLASSES, channels_in=1, dropout=0.5)
    assert model(clips(model, 2, Shape(4, 16, 16), channels=1)).shape == (2, CLASSES)
    assert any(isinstance(module, nn.Dropout) and module.p == 0.5 for module in model.modules())


def test_torchvisions_builder_takes_exactly_the_options_of_its_class():
    taken = set(inspect.signature(torchvision_model).parameters)
    assert {*SizedOptions.model_fields, "classes", "name"} == taken
