"""The arithmetic of a step, counted without doing it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vcycle.plan import BatchShape

__all__ = ["step_flops"]


def step_flops(build: Callable[[], nn.Module], shape: BatchShape, *, channels: int = 3) -> int:
    """Floating-point operations of one step, forward and backward: 2 for each multiply-add of a convolution or product.

    Norms, activations and the optimizer are not counted, as usual. Nothing is allocated.

    Args:
        build: Makes the model.
        shape: Of the batch.
        channels: Of the clips.
    """
    with torch.device("meta"):
        model = build().train()
        clips = torch.empty(shape.batch, channels, *shape.shape)
    counter = FlopCounterMode(display=False)
    with counter:
        model(clips).sum().backward()
    return int(counter.get_total_flops())
