"""What a training takes of memory at the least: refused before anything is made where a machine has not as much."""

from typing import TYPE_CHECKING

from vcycle.errors import RecipeError
from vcycle.plan import Plan

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check_extent", "check_memory"]

_CHANNELS, _BYTES = 3, 4
_MOST = 1 << 44
"""Bytes of a step's clips that no machine holds; beyond them, sizes overflow."""


def check_extent(plan: Plan, *, scale: int = 1) -> None:
    """Check that a machine may hold the clips of each step. Needs no torch.

    Args:
        plan: The plan.
        scale: How many times larger than the plan's the sides of the largest pictures are.

    Raises:
        RecipeError: naming the shape of batch that none can hold.
    """
    for cell in plan.shapes:
        if (size := _bytes_of(cell.voxels * scale**2)) > _MOST:
            raise RecipeError(
                f"training.batch, training.frames and training.size: a step of {cell} takes {_shown(size)} of memory "
                f"for its clips alone; at most {_shown(_MOST)} are accepted"
            )


def check_memory(model: "nn.Module", plan: Plan, *, world: int = 1, scale: int = 1) -> None:
    """Check that this machine holds a model with its gradients, and the clips of a step.

    Args:
        model: On the meta device.
        plan: The plan.
        world: Processes that share a step.
        scale: As in `check_extent`.

    Raises:
        RecipeError: if it does not, by a wide margin: what activations take is not counted.
    """
    import torch

    from vcycle.train.memory import memory_of

    there = memory_of(torch.device("cpu"))
    weights = 2 * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if weights // world > there:
        raise RecipeError(
            f"model: its weights and gradients take {_shown(weights)} of memory, and there are {_shown(there)}: "
            "smaller model.options are accepted"
        )
    largest = max(plan.shapes, key=lambda cell: cell.voxels)
    if (clips := _bytes_of(largest.voxels * scale**2) // world) > there:
        raise RecipeError(
            f"training: a step of {largest} takes {_shown(clips)} of memory for its clips alone, and there are "
            f"{_shown(there)}: a smaller training.batch, training.frames or training.size is accepted"
        )


def _bytes_of(voxels: int) -> int:
    return voxels * _CHANNELS * _BYTES


def _shown(size: int) -> str:
    return f"{size / 2**30:,.0f} GiB"
