"""Gradient norm, gradient clipping, and skipped updates.

A loss or gradient that is not finite comes from a rare sample or from diverged training. A single such update is
skipped, too many in a row end the run. Everything is computed on the device without synchronization: the log reads the
results back some steps later.
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
    """The result of a step, still on the device."""

    loss: Tensor
    """The loss of the whole batch."""
    made: Tensor
    """Whether the update was made, a boolean: False if the loss or a gradient was not finite."""
    grad_norm: Tensor
    """The gradient norm of the whole batch, before clipping."""


def gradient_norm(optimizer: torch.optim.Optimizer, *, sharded: bool = False) -> Tensor:
    """The total norm of all gradients, on their device: inf or nan if one of them is.

    Args:
        optimizer: The optimizer of the parameters.
        sharded: Whether gradients are sharded over ranks: then all ranks call this, and get the same norm.
    """
    norm = get_total_norm([local_shard(gradient) for gradient in _gradients(optimizer)])
    if not sharded:
        return norm
    squares = norm.double().square()
    distributed.all_reduce(squares)
    return squares.sqrt().to(norm.dtype)


def clip_gradients(optimizer: torch.optim.Optimizer, norm: Tensor, most: float) -> None:
    """Clip gradients to a maximum norm, as `torch.nn.utils.clip_grad_norm_` does.

    Args:
        optimizer: The optimizer of the parameters.
        norm: The total norm of the gradients, including those on other ranks.
        most: The maximum norm.
    """
    torch._foreach_mul_(
        [local_shard(gradient) for gradient in _gradients(optimizer)], (most / (norm + 1e-6)).clamp(max=1.0)
    )


def _gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def step_if(made: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Step an optimizer if `made` is true.

    A fused optimizer reads the flag on the device. For any other optimizer the host waits for the device, which costs
    nothing on a CPU. So it does for a first step: in PyTorch, momentum is undefined if the first step is skipped.

    Args:
        made: A boolean, on the device.
        optimizer: The optimizer.
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
    """Whether this is the first step of any parameter."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return any(p.grad is not None and not optimizer.state.get(p) for p in parameters)


@dataclass(kw_only=True)
class Skips:
    """Counts skipped updates, and stops a run with too many in a row."""

    totals: Totals
    """The totals in which they are counted."""
    allowed: int
    """The most updates in a row that may be skipped."""
    log: Path
    """The log, which lists the samples."""
    name: Callable[[int], str] | None = None
    """Names an item of the dataset."""
    on_message: Callable[[str], None] = lambda _: None
    """Called with a message for each of the first few."""
    _told: int = field(default=0, init=False)

    def samples(self, indices: Tensor) -> dict[str, Any]:
        """The samples of a skipped update for the log: dataset indices and, if the dataset has them, names."""
        found: dict[str, Any] = {"samples": indices.tolist()}
        return found if self.name is None else found | {"names": [self.name(index) for index in found["samples"]]}

    def count(self, line: Mapping[str, Any], loss: float, *, kept: bool) -> None:
        """Count a step.

        Args:
            line: The step's line of the log.
            loss: The loss.
            kept: Whether the update was made.

        Raises:
            VcycleError: if too many updates in a row were skipped.
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
