"""Applies a step of the plan to a model and its optimizer: the only call per step in your own training loop."""

import warnings
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcycle.nn.batchnorm import SubBatchNorm, set_bn_batch, sub_batch_layers
from vcycle.plan import Step

__all__ = ["apply"]

_Rate = tuple[dict[str, Any], object, int]
"""A parameter group, its LR and, if the LR is a tensor, that tensor's version."""

_given: WeakKeyDictionary[torch.optim.Optimizer, list[_Rate]] = WeakKeyDictionary()
"""The LRs that each optimizer got in the last call."""
_named: WeakSet[nn.Module | torch.optim.Optimizer] = WeakSet()
"""Models and optimizers for which a warning was issued."""


def apply(step: Step, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Set the learning rates and the BatchNorm sub-batch of a step.

    A parameter group may have ``role`` (a role of the plan, None if absent) and ``lr_scale`` (your own LR factor, 1 if
    absent; it may change from step to step).

    Args:
        step: ``plan[index]``.
        model: a model, converted by :func:`vcycle.nn.convert_batchnorm` or not.
        optimizer: any optimizer; the ``lr`` of its groups is overwritten.

    Warns:
        UserWarning: once for a model with an unconverted BatchNorm in training mode that would normalise over more
            clips than a group of the step has; once for an optimizer whose LR has changed since the last call, as an
            LR scheduler's ``step()`` does.

    Example:
        >>> from types import SimpleNamespace
        >>> layer = nn.Linear(2, 2)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        >>> apply(SimpleNamespace(bn_batch=8, lr_of=lambda role: 0.25), layer, optimizer)
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """
    if optimizer not in _named and _changed(optimizer):
        _named.add(optimizer)
        warnings.warn(
            "the LR that vcycle.apply set has changed since: an LR scheduler's step() or your loop overrides the LR of "
            "the plan, which includes warmup, decay and the batch factor. Remove it; pass your own LR schedule to the "
            "plan, Baseline(decay=vcycle.CurveDecay.sampled(...)), and your own LR factor in group['lr_scale']",
            stacklevel=2,
        )
    for group in optimizer.param_groups:
        lr = step.lr_of(group.get("role")) * group.get("lr_scale", 1.0)
        if isinstance(group["lr"], torch.Tensor):  # a captured or compiled optimizer reads this tensor
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    _given[optimizer] = [(group, group["lr"], _writes(group["lr"])) for group in optimizer.param_groups]
    if any(layer.bn_batch != step.bn_batch for layer in sub_batch_layers(model)):
        set_bn_batch(model, step.bn_batch)
    if model not in _named and (plain := next(_unconverted(step, model), None)) is not None:
        _named.add(model)
        warnings.warn(
            f"layer {plain!r} is a BatchNorm that is not converted: it normalises over the whole batch, up to "
            f"{step.batch} clips, and not over groups of {step.bn_batch} as the plan requires. Call "
            "vcycle.convert_batchnorm(model) before the loop",
            stacklevel=2,
        )


def _changed(optimizer: torch.optim.Optimizer) -> bool:
    """Whether other code has set an LR since the last call. Groups loaded or added since then do not count."""
    groups = {id(group): group for group in optimizer.param_groups}
    for group, lr, writes in _given.get(optimizer, ()):
        if id(group) not in groups:
            continue
        now = group["lr"]
        # Reading a tensor's value may synchronize with the device, so compare its version.
        if (now is not lr or _writes(now) != writes) if isinstance(lr, torch.Tensor) else now != lr:
            return True
    return False


def _writes(lr: object) -> int:
    """The version of an LR that is a tensor, which grows with every in-place write; 0 for a float."""
    return lr._version if isinstance(lr, torch.Tensor) else 0


def _unconverted(step: Step, model: nn.Module) -> Iterator[str]:
    """Names of unconverted BatchNorms that would normalise over more clips than a group of the step has."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    ranks = torch.distributed.get_world_size() if distributed else 1
    for name, layer in model.named_modules():
        if not isinstance(layer, _BatchNorm) or isinstance(layer, SubBatchNorm) or not layer.training:
            continue
        clips = step.batch if isinstance(layer, nn.SyncBatchNorm) else -(-step.batch // ranks)
        if clips > step.bn_batch:
            yield name or "model"
