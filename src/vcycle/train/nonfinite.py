"""Updates that would spoil the weights for good: not made, counted, and too many of them in a row end the run.

A loss or a gradient that is not finite comes of a rare sample or of a training that has diverged. The first is passed
over, the second cannot be mended by going on. Both are found out on the device, which nobody waits for: the log reads
back what happened some steps later.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from vcycle.errors import VcycleError
from vcycle.train.outcome import Totals
from vcycle.train.shards import own

__all__ = ["Learned", "Skips", "finite", "step_if"]

_TOLD = 3
"""Skipped updates that are told of one by one."""


class Learned(NamedTuple):
    """What an update tells, still on the device."""

    loss: Tensor
    """The loss of the whole batch."""
    kept: Tensor
    """Whether the update was made, a boolean: not if it would not have been finite."""


def finite(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """Whether a loss and all gradients are finite: a boolean on their device.

    Where ranks have exchanged gradients and loss, all of them find the same; where each has a part of the gradients,
    of its own.

    Args:
        loss: Of the whole batch.
        optimizer: Whose parameters have gradients.
    """
    gradients = [own(p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return torch.isfinite(loss) & torch.isfinite(get_total_norm(gradients)).to(loss.device)


def step_if(kept: Tensor, optimizer: Any, raw: torch.optim.Optimizer) -> None:
    """Take an optimizer's step if it is to be kept.

    A fused optimizer is told on the device. Any other has the device waited for, which on a CPU costs nothing, and so
    has a first step: PyTorch leaves a momentum that begins with a skipped one undefined.

    Args:
        kept: A boolean, on the device.
        optimizer: What takes the step.
        raw: The optimizer itself, if that is wrapped.
    """
    if kept.device.type == "cpu" or not all(group.get("fused") for group in raw.param_groups) or _begins(raw):
        if kept:
            optimizer.step()
        return
    raw.found_inf = (~kept).float()  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del raw.found_inf  # type: ignore[attr-defined]


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
