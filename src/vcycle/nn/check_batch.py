"""Checks that a batch is one of its step: the shape of its clips, and how many there are on this rank."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vcycle.errors import PlanError
from vcycle.plan import Step, rank_slice
from vcycle.utils.ranks import rank_and_world

__all__ = ["check_batch"]

_SIDES = {5: ((2, 3, 4), (1, 3, 4), (1, 2, 3)), 4: ((2, 3), (1, 2))}
"""Where clips have frames, height and width: (B, C, T, H, W), (B, T, C, H, W) or (B, T, H, W, C); images likewise."""


def check_batch(step: Step, batch: Any, *, rank: int | None = None, world: int | None = None) -> None:
    """Refuse a batch that is not of a step.

    Args:
        step: ``plan[index]``.
        batch: Clips, ``(B, C, T, H, W)``, ``(B, T, C, H, W)`` or ``(B, T, H, W, C)``, or for steps of one frame images
            without T; or a tuple or list that starts with them, or a mapping that has them. The positions of a
            ``Batch`` are compared too.
        rank: This rank, found by default.
        world: Number of ranks, found by default.

    Raises:
        PlanError: naming the step, what it expects and what the batch is.
    """
    clips = _clips_of(batch)
    rank, world = rank_and_world(rank, world)
    places = rank_slice(step.batch, step.bn_batch, rank, world)
    own = len(places)
    shape = tuple(clips.shape)
    sides = tuple(step.shape) if len(shape) == 5 else tuple(step.shape[1:])
    fits = len(shape) == 5 or (len(shape) == 4 and step.shape.frames == 1)
    if fits and shape[0] == own and any(tuple(shape[k] for k in where) == sides for where in _SIDES[len(shape)]):
        _check_position(step, batch, step.first_sample + places.start)
        return
    whose = f" of rank {rank} of {world}" if world > 1 else ""
    raise PlanError(
        f"the batch is not of step {step.index:,}, which expects {own} clips{whose} of {step.shape} (T×H×W): it has "
        f"shape {shape}. Iterate over vcycle.steps, which pairs each step with its batch"
    )


def _check_position(step: Step, batch: Any, expected: int) -> None:
    """Refuse the samples of another step of the same shape, if the batch has their positions, as `data.Batch` has.

    Raises:
        PlanError: naming the step and both positions.
    """
    if not {"clips", "positions"} <= set(getattr(batch, "_fields", ())):
        return
    positions: Tensor = batch.positions
    if positions.device.type == "cpu" and positions[0] != expected:  # on a device it would synchronize
        raise PlanError(
            f"the batch is not of step {step.index:,}, whose first sample here is number {expected:,} of the stream: "
            f"its first is number {int(positions[0]):,}. Iterate over vcycle.steps, which pairs step and batch"
        )


def _clips_of(batch: Any) -> Tensor:
    """The clips of a batch.

    Raises:
        PlanError: if it has none, or it is a mapping with several tensors that may be.
    """
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, tuple | list) and batch:
        return _clips_of(batch[0])
    if isinstance(batch, Mapping):
        for dimensions in (5, 4):  # images, where there are no clips
            found = [key for key, value in batch.items() if isinstance(value, Tensor) and value.ndim == dimensions]
            if len(found) == 1:
                return _clips_of(batch[found[0]])
            if found:
                break
        keys = ", ".join(map(repr, batch)) or "nothing"
        raise PlanError(f"the clips of a batch with {keys} are not clear: pass them alone, as in batch['pixel_values']")
    raise PlanError(
        f"a batch is {type(batch).__name__}; accepted: clips, a tuple that starts with clips, a dict that has clips"
    )
