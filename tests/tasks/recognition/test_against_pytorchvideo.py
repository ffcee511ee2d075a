"""One random checkpoint under both names gives the same answers in pytorchvideo's models and in ours.

For development: pytorchvideo is no dependency. `pip install pytorchvideo` beside vcycle, and run this file.
"""

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcycle.tasks.classification.head import fully_convolutional
from vcycle.tasks.recognition.models import build_model
from vcycle.tasks.recognition.models.slowfast.network import slow_frames
from vcycle.tasks.recognition.weights.keys import foreign_keys, to_ours

hub = pytest.importorskip("pytorchvideo.models.hub", exc_type=ImportError)
create_slowfast = pytest.importorskip("pytorchvideo.models.slowfast").create_slowfast

CLASSES = 400
SIDE = 64  # for which their fixed pooling is made here; 224 in their zoo
CELLS = SIDE // 32


def pools(slow, fast):
    return {"head_pool_kernel_sizes": ((slow, CELLS, CELLS), (fast, CELLS, CELLS))}


def slowfast_4x16(**options):
    """Not in their zoo, but in the figures of their builder."""
    return create_slowfast(
        slowfast_fusion_conv_kernel_size=(5, 1, 1), slowfast_fusion_conv_stride=(8, 1, 1), **pools(4, 32), **options
    )


MODELS = {
    "slowfast_4x16_r50": (slowfast_4x16, 32, {}),
    "slowfast_8x8_r50": (hub.slowfast_r50, 32, pools(8, 32)),
    "slowfast_8x8_r101": (hub.slowfast_r101, 32, pools(8, 32)),
    "slowfast_16x8_r101_50_50": (hub.slowfast_16x8_r101_50_50, 64, {}),
    "i3d_r50": (hub.i3d_r50, 8, {"head_pool_kernel_size": (4, CELLS, CELLS)}),
    "slow_r50": (hub.slow_r50, 8, {}),
    "c2d_r50": (hub.c2d_r50, 8, {"head_pool_kernel_size": (4, CELLS, CELLS)}),
}
FIXED = ("slowfast_16x8_r101_50_50", "slow_r50")
"""Their builders fix the pooling to 7 by 7 cells."""


def randomised(model):
    """The model with every tensor drawn, so that none of them can be missed."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            nn.init.uniform_(module.weight, 0.2, 0.6)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    nn.init.normal_(model.head.projection.bias)
    return model.eval()


def pair(name, **options):
    builder, frames, settings = MODELS[name]
    ours = randomised(build_model(name, CLASSES))
    theirs = builder(**settings, **options).eval()
    keys = foreign_keys(ours.state_dict(), "pytorchvideo", temporal_pool=name.startswith(("i3d", "c2d")))
    theirs.load_state_dict({keys[key]: value for key, value in ours.state_dict().items()})
    assert to_ours(theirs.state_dict()) == {theirs: ours for ours, theirs in keys.items()}
    return ours, theirs, frames


def answers(ours, theirs, frames, side):
    x = torch.randn((1, 3, frames, side, side), generator=torch.Generator().manual_seed(1))
    alpha = getattr(ours, "alpha", None)
    with torch.no_grad():
        return ours(x), theirs(x if alpha is None else [x[:, :, slow_frames(frames, alpha)], x])


@pytest.mark.parametrize("name", MODELS)
def test_logits_at_the_trained_size_are_theirs(name):
    logits, expected = answers(*pair(name), 224 if name in FIXED else SIDE)
    assert expected.std() > 0.1
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["slowfast_8x8_r50", "i3d_r50"])
def test_the_fully_convolutional_test_is_theirs(name):
    ours, theirs, frames = pair(name, head_activation=nn.Softmax)
    with fully_convolutional(ours, SIDE):
        logits, expected = answers(ours, theirs, frames, 3 * SIDE // 2)
    torch.testing.assert_close(logits.softmax(-1), expected, rtol=1e-3, atol=1e-5)
