"""The learning rates of a step: computed, set in an optimizer, and whether other code has changed them since."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from vcycle.plan import Step

__all__ = ["have_changed", "note_rates", "rates_of", "set_rates", "unwrapped"]

_Rate = tuple[dict[str, Any], object, int]
"""A parameter group, its LR and, if the LR is a tensor, that tensor's version."""

_given: WeakKeyDictionary[torch.optim.Optimizer, list[_Rate]] = WeakKeyDictionary()
"""The LRs that each optimizer was last given."""


def rates_of(step: Step, optimizer: torch.optim.Optimizer) -> list[float]:
    """The LR of each parameter group at a step: that of its ``role``, times its ``lr_scale``.

    Raises:
        PlanError: if the plan has no such role.
    """
    return [step.lr_of(group.get("role")) * group.get("lr_scale", 1.0) for group in optimizer.param_groups]


def set_rates(optimizer: torch.optim.Optimizer, rates: Sequence[float]) -> None:
    """Set the LR of each parameter group, and remember it for `have_changed`."""
    filled: set[int] = set()
    for group, lr in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], torch.Tensor):  # a captured or compiled optimizer reads this tensor
            if id(group["lr"]) in filled:  # PyTorch gives all groups without their own LR one tensor
                group["lr"] = group["lr"].clone()
            group["lr"].fill_(lr)
            filled.add(id(group["lr"]))
        else:
            group["lr"] = lr
    note_rates(optimizer)


def note_rates(optimizer: torch.optim.Optimizer) -> None:
    """Remember the LRs that were just set."""
    _given[unwrapped(optimizer)] = [(group, group["lr"], _writes(group["lr"])) for group in optimizer.param_groups]


def have_changed(optimizer: torch.optim.Optimizer) -> bool:
    """Whether other code has set an LR since the plan's was set. Groups loaded or added since then do not count."""
    groups = {id(group): group for group in optimizer.param_groups}
    for group, lr, writes in _given.get(unwrapped(optimizer), ()):
        if id(group) not in groups:
            continue
        now = group["lr"]
        # Reading a tensor's value may synchronize with the device, so compare its version.
        if (now is not lr or _writes(now) != writes) if isinstance(lr, torch.Tensor) else now != lr:
            return True
    return False


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """PyTorch's optimizer within one that Accelerate, Fabric or Lightning has wrapped."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer) and inner is not optimizer:
        optimizer = inner
    return optimizer


def _writes(lr: object) -> int:
    """The version of an LR that is a tensor, which grows with every in-place write; 0 for a float."""
    return lr._version if isinstance(lr, torch.Tensor) else 0
