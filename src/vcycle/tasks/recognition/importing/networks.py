"""The networks that several tools describe, by vcycle's names and options."""

from collections.abc import Sequence
from typing import Any

from vcycle.tasks.importing import named_model
from vcycle.tasks.recognition.models import MODELS

__all__ = ["BLOCKS", "WIDTHS", "per_block", "slowfast"]

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Residual blocks in each stage of a ResNet by its depth."""
WIDTHS = (1, 2, 4, 8)
"""Inner channels of each stage, in channels of the first."""


def slowfast(options: dict[str, Any], frames: int, stride: float) -> dict[str, Any]:
    """The SlowFast with these options.

    Args:
        options: The network's options.
        frames: Frames per clip.
        stride: Distance between them; with `alpha` it tells models apart that have the same weights.
    """
    alpha = options["alpha"]
    usual = f"slowfast_{frames // alpha}x{stride * alpha:g}_"
    names = [name for name in MODELS.names() if name.startswith("slowfast_") and name != "slowfast_tiny"]
    return named_model(MODELS, sorted(names, key=lambda name: not name.startswith(usual)), options)


def per_block(kernels: Sequence[int], temporal: Sequence[int], blocks: Sequence[int]) -> tuple[Any, ...]:
    """The temporal kernel sizes of each stage, if only its first blocks convolve in time.

    Args:
        kernels: The kernel size of each stage.
        temporal: The number of blocks in each stage that convolve in time.
        blocks: The number of blocks in each stage.
    """
    found: list[Any] = []
    for kernel, first, count in zip(kernels, temporal, blocks, strict=True):
        rest = count - first
        found.append(kernel if kernel == 1 or rest <= 0 else (kernel,) * first + (1,) * rest)
    return tuple(found)
