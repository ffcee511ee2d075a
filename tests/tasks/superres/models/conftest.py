"""The weights and videos that golden forwards are defined on (facts on super-resolution, section 3.6)."""

import math

import pytest
import torch

from vcycle.tasks.superres.weights.keys import foreign_keys


def waves(batch, frames, height, width):
    """A moving pattern, ``(B, T, 3, H, W)`` in 0..1."""
    ranges = [torch.arange(n, dtype=torch.float64) for n in (batch, frames, 3, height, width)]
    b, t, c, i, j = torch.meshgrid(*ranges, indexing="ij")
    return (0.5 + 0.5 * torch.sin(0.13 * i + 0.19 * j + 0.7 * t + 1.1 * c + 0.5 * b)).float()


def fill(model, names=None):
    """Overwrite all weights with cosines, in the order of BasicSR's names."""
    state = model.state_dict()
    names = foreign_keys(state, "basicsr") if names is None else names
    assert set(names) == set(state)
    order = sorted((key for key in state if not key.endswith(("mean", "std"))), key=names.__getitem__)
    for k, key in enumerate(order):
        p = state[key]
        scale = 1 / math.sqrt(p[0].numel()) if p.dim() > 1 else 0.01
        p.copy_((scale * torch.cos(0.7 * torch.arange(p.numel(), dtype=torch.float64) + k)).view(p.shape))
    return model


@pytest.fixture(scope="session")
def video():
    return waves


@pytest.fixture(scope="session")
def golden():
    return fill
