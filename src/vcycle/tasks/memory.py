"""Checks the minimum memory of a training before it starts, to avoid an out-of-memory error later."""

from typing import TYPE_CHECKING

from vcycle.errors import RecipeError
from vcycle.plan import Plan

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check_extent", "check_memory"]

_CHANNELS, _BYTES = 3, 4
_MOST = 1 << 44
"""Upper limit in bytes on the clips of a step: more than any machine has; beyond it, sizes overflow."""


def check_extent(plan: Plan, *, scale: int = 1) -> None:
    """Check that the clips of each step can fit in any machine's memory. Imports no torch.

    Args:
        plan: The plan.
        scale: Ratio of the sides of the largest images to the sides of the plan's shapes.

    Raises:
        RecipeError: if a batch is too large for any machine; names its shape.
    """
    for cell in plan.shapes:
        if (size := _bytes_of(cell.voxels * scale**2)) > _MOST:
            raise RecipeError(
                f"training.batch, training.frames and training.size: the clips of a step of {cell} alone need "
                f"{_shown(size)} of memory; the limit is {_shown(_MOST)}"
            )


def check_memory(model: "nn.Module", plan: Plan, *, world: int = 1, scale: int = 1) -> None:
    """Check that this machine has memory for the model with its gradients, and for the clips of a step.

    Args:
        model: The model, on the meta device.
        plan: The plan.
        world: Number of processes that share a step.
        scale: As in `check_extent`.

    Raises:
        RecipeError: if it does not. This is a lower bound: activations are not counted.
    """
    import torch

    from vcycle.train.memory import memory_of

    there = memory_of(torch.device("cpu"))
    weights = 2 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if weights // world > there:
        raise RecipeError(
            f"model: its weights and gradients need {_shown(weights)} of memory, the machine has {_shown(there)}: "
            "reduce model.options"
        )
    largest = max(plan.shapes, key=lambda cell: cell.voxels)
    if (clips := _bytes_of(largest.voxels * scale**2) // world) > there:
        raise RecipeError(
            f"training: the clips of a step of {largest} alone need {_shown(clips)} of memory, the machine has "
            f"{_shown(there)}: reduce training.batch, training.frames or training.size"
        )


def _bytes_of(voxels: int) -> int:
    return voxels * _CHANNELS * _BYTES


def _shown(size: int) -> str:
    return f"{size / 2**30:,.0f} GiB"
