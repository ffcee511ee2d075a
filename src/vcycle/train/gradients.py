"""The gradients of a step: their norm, clipping, and updates that are skipped because they would not be finite.

A loss or a gradient that is not finite comes from a rare sample or from a training that has diverged. The first is
skipped, the second ends the run. All of it is computed on the device, which nobody waits for: the log reads back some
steps later what happened.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.nn.utils import get_total_norm

from vcycle.errors import VcycleError
from vcycle.train.outcome import Totals
from vcycle.train.shards import local_shard

__all__ = ["Skips", "StepResult", "clip_gradients", "gradient_norm", "step_if"]

_TOLD = 3
"""Skipped updates that are reported one by one."""


class StepResult(NamedTuple):
    """What a step found, still on the device."""

    loss: Tensor
    """The loss of the whole batch."""
    made: Tensor
    """Whether the update was made, a boolean: not if it would not have been finite."""
    grad_norm: Tensor
    """The norm of the whole batch's gradients, before clipping."""


def gradient_norm(optimizer: torch.optim.Optimizer, *, sharded: bool = False) -> Tensor:
    """The norm of all gradients together, on their device: inf or nan if one of them is.

    Args:
        optimizer: Whose parameters have gradients.
        sharded: Whether each rank has a part of them; then all ranks call this, and find the same.
    """
    norm = get_total_norm([local_shard(gradient) for gradient in _gradients(optimizer)])
    if not sharded:
        return norm
    squares = norm.double().square()
    distributed.all_reduce(squares)
    return squares.sqrt().to(norm.dtype)


def clip_gradients(optimizer: torch.optim.Optimizer, norm: Tensor, most: float) -> None:
    """Scale gradients down to a norm, where theirs is larger, as `torch.nn.utils.clip_grad_norm_` does.

    Args:
        optimizer: Whose parameters have gradients.
        norm: The norm of all of them, those on other ranks included.
        most: The norm that they keep.
    """
    torch._foreach_mul_(
        [local_shard(gradient) for gradient in _gradients(optimizer)], (most / (norm + 1e-6)).clamp(max=1.0)
    )


def _gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def step_if(made: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Take an optimizer's step if the update is to be made.

    A fused optimizer is told on the device. For any other the host waits for the device, which on a CPU costs nothing,
    and so it does for a first step: PyTorch leaves a momentum that begins with a skipped one undefined.

    Args:
        made: A boolean, on the device.
        optimizer: What takes the step.
    """
    if (
        made.device.type == "cpu"
        or not all(group.get("fused") for group in optimizer.param_groups)
        or _begins(optimizer)
    ):
        if made:
            optimizer.step()
        return
    optimizer.found_inf = (~made).float()  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def _begins(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a parameter is to take its first step."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return any(p.grad is not None and not optimizer.state.get(p) for p in parameters)


@dataclass(kw_only=True)
class Skips:
    """Counts what was skipped, and ends a run that does nothing else."""

    totals: Totals
    """Where it is counted."""
    allowed: int
    """How many updates in a row may be skipped."""
    log: Path
    """The log, which names the samples."""
    name: Callable[[int], str] | None = None
    """Names an item of the dataset."""
    on_message: Callable[[str], None] = lambda _: None
    """Told of the first few."""
    _told: int = field(default=0, init=False)

    def samples(self, indices: Tensor) -> dict[str, Any]:
        """What the log says of the samples of a skipped update: dataset indices and, where they have them, names."""
        found: dict[str, Any] = {"samples": indices.tolist()}
        return found if self.name is None else found | {"names": [self.name(index) for index in found["samples"]]}

    def count(self, line: Mapping[str, Any], loss: float, *, kept: bool) -> None:
        """Count a step.

        Args:
            line: Of the log.
            loss: The loss.
            kept: Whether its update was made.

        Raises:
            VcycleError: if too many in a row were not.
        """
        if kept:
            self.totals.skipped_in_row = 0
            return
        self.totals.skipped += 1
        self.totals.skipped_in_row += 1
        in_row = self.totals.skipped_in_row
        what = f"the loss became {loss}" if not math.isfinite(loss) else f"a gradient became nan or inf (loss {loss:g})"
        where = (
            f"at step {line['step']:,} (LR {line['lr']:g}, {line['batch']} clips of {line['frames']}×{line['size']}²)"
        )
        if in_row > self.allowed:
            again = f", as in the {in_row - 1} before" if in_row > 1 else ""
            raise VcycleError(
                f"{what} {where}{again}: lower training.lr or lengthen training.warmup; the samples of each such step "
                f"are in {self.log}"
            )
        if self._told < _TOLD:
            self._told += 1
            self.on_message(f"{what} {where}: its update is skipped; its samples are in {self.log}")
