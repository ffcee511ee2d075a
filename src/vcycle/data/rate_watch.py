"""Notices a loop that forgets ``vcycle.apply``: its optimizer keeps its LR where the plan's changes."""

import warnings
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from vcycle.plan import Step
from vcycle.utils.stack import outside

__all__ = ["RateWatch"]

_UPDATES = 8
"""Updates at the same LR after the plan's has changed. A loop takes fewer batches ahead of its updates."""


class RateWatch:
    """Sees the steps that a loop asks for, and each update of an optimizer until there is a verdict.

    It warns once if an optimizer's LR stays the same while the plan's changes. An optimizer that has an LR scheduler,
    or whose LR has ever changed, has its LR from the loop, so nothing is said. One with the modes ``train()`` and
    ``eval()`` is schedule-free: it keeps its LR on purpose, so it does not count.
    """

    def __init__(self) -> None:
        """Watch the optimizers of this process."""
        self._first: Step | None = None
        self._changed: Step | None = None
        """The first step of another LR."""
        self._updates = 0
        """Updates since then."""
        self._rates: WeakKeyDictionary[torch.optim.Optimizer, list[object]] = WeakKeyDictionary()
        """The LRs of each optimizer at its first update."""
        _look_on()
        _WATCHES.add(self)

    def see(self, step: Step) -> None:
        """See a step that the loop asks for.

        Warns:
            UserWarning: if the LR of no optimizer has followed the plan's.
        """
        if self not in _WATCHES:
            return
        first = self._first = self._first or step
        if self._changed is None:
            self._changed = step if step.lr != first.lr else None
        elif self._updates >= _UPDATES:
            _WATCHES.discard(self)
            held = ", ".join(sorted({type(optimizer).__name__ for optimizer in self._rates}))
            warnings.warn(
                f"the LR of the plan has changed from {first.lr:g} (step {first.index:,}) to {self._changed.lr:g} "
                f"(step {self._changed.index:,}), but that of {held} is still what it was: call "
                "vcycle.apply(step, model, optimizer, clips) at each step, before the forward pass. It sets the LR and "
                "the BatchNorm groups of the step",
                stacklevel=outside(),
            )

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """See an update. One that is the first after the plan's LR has changed tells nothing of the LR before."""
        if _is_schedule_free(optimizer):
            return
        rates = [_rate(group.get("lr")) for group in optimizer.param_groups]
        if self._changed is None:
            self._rates.setdefault(optimizer, rates)
        if rates != self._rates.get(optimizer, rates) or "initial_lr" in optimizer.param_groups[0]:
            _WATCHES.discard(self)
        elif self._changed is not None and optimizer in self._rates:
            self._updates += 1


_WATCHES: WeakSet[RateWatch] = WeakSet()
"""Those that have no verdict yet."""


@cache
def _look_on() -> None:
    """See the updates of every optimizer. The hook stays: PyTorch iterates over hooks, which must not go meanwhile."""

    def update(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling():  # the graph of a compiled optimizer would break here
            for watch in tuple(_WATCHES):
                watch.update(optimizer)

    register_optimizer_step_pre_hook(update)


def _is_schedule_free(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer has two modes to switch between, by which trainers recognise schedule-free ones."""
    return all(callable(getattr(optimizer, mode, None)) for mode in ("train", "eval"))


def _rate(lr: Any) -> object:
    """An LR to compare. A tensor's value is not read, which may synchronize with the device: its version counts."""
    return (id(lr), lr._version) if isinstance(lr, torch.Tensor) else lr
