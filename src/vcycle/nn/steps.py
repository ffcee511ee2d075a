"""Applies a step of the plan to a model and its optimizer: the only call per step in a training loop."""

import warnings
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcycle.nn.batchnorm import SubBatchNorm, set_bn_batch, sub_batch_layers
from vcycle.nn.check_batch import check_batch
from vcycle.nn.plan_lr import scheduler_of
from vcycle.nn.rates import have_changed, rates_of, set_rates
from vcycle.nn.tokens import drop_tokens
from vcycle.plan import Step
from vcycle.plan.arguments import check_kind
from vcycle.utils.ranks import rank_and_world

__all__ = ["apply"]

_named: WeakSet[nn.Module | torch.optim.Optimizer] = WeakSet()
"""Models and optimizers for which a warning was issued."""


def apply(
    step: Step,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any = None,
    *,
    rank: int | None = None,
    world: int | None = None,
    seed: int = 0,
) -> None:
    """Set learning rates, BatchNorm sub-batch and share of tokens of a step, and check that a batch is the step's.

    A parameter group may have ``role`` (a role of the plan, None if absent) and ``lr_scale`` (your own LR factor, 1 if
    absent; it may change from step to step). If the optimizer has a :class:`vcycle.nn.PlanLR`, that is brought to the
    step.

    Args:
        step: ``plan[index]``.
        model: a model, converted by :func:`vcycle.nn.convert_batchnorm` or not.
        optimizer: any optimizer; the ``lr`` of its groups is overwritten.
        batch: this rank's batch of the step, which is then checked: its clips, ``(B, C, T, H, W)``,
            ``(B, T, C, H, W)`` or ``(B, T, H, W, C)``; a tuple or list that starts with them; or a dict that has one
            such tensor. At one frame, ``(B, C, H, W)`` or ``(B, H, W, C)`` too.
        rank: this rank; by default that of ``torch.distributed`` or of the environment, as in ``vcycle.loader``.
        world: number of ranks, likewise.
        seed: the seed by which tokens are dropped, if the plan drops any (:class:`vcycle.nn.TokenDropping`).

    Raises:
        PlanError: if arguments are swapped or of another class; if the batch has other frames, height, width or clips
            than this rank's of the step; if a group names a role that the plan lacks; if the step drops tokens, which
            the model cannot; or if the optimizer's ``PlanLR`` is of another plan or ahead of the step.

    Warns:
        UserWarning: once for a model with an unconverted BatchNorm in training mode that would normalise over more
            clips than a group of the step has; once for an optimizer whose LR has changed since the last call, as an
            LR scheduler's ``step()`` does.

    Example:
        >>> from vcycle.plan import Baseline, constant
        >>> plan = constant(Baseline(batch=4, frames=8, size=32, clips=8, epochs=2, lr=0.25))
        >>> layer = nn.Linear(2, 2)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        >>> apply(plan[0], layer, optimizer)
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """
    if not (isinstance(step, Step) and isinstance(model, nn.Module) and hasattr(optimizer, "param_groups")):
        _refuse(step, model, optimizer)
    if batch is not None:
        check_batch(step, batch, rank=rank, world=world)
    scheduler = scheduler_of(optimizer)
    if scheduler is not None:
        scheduler.check(step)
    if optimizer not in _named and have_changed(optimizer):
        _named.add(optimizer)
        warnings.warn(
            "the LR that vcycle.apply set has changed since: an LR scheduler's step() or your loop overrides the LR of "
            "the plan, which includes warmup, decay and the batch factor. Remove it; pass your own LR schedule to the "
            "plan, Baseline(decay=vcycle.CurveDecay.sampled(...)), and your own LR factor in group['lr_scale']",
            stacklevel=2,
        )
    if scheduler is None:
        set_rates(optimizer, rates_of(step, optimizer))
    else:
        scheduler.move_to(step.index)
    if any(layer.bn_batch != step.bn_batch for layer in sub_batch_layers(model)):
        set_bn_batch(model, step.bn_batch)
    drop_tokens(model, step, seed=seed, rank=rank, world=world)
    if model not in _named and (plain := next(_unconverted(step, model, rank, world), None)) is not None:
        _named.add(model)
        warnings.warn(
            f"layer {plain!r} is a BatchNorm that is not converted: it normalises over the whole batch, up to "
            f"{step.batch} clips, and not over groups of {step.bn_batch} as the plan requires. Call "
            "vcycle.convert_batchnorm(model) before the loop",
            stacklevel=2,
        )


def _refuse(step: object, model: object, optimizer: object) -> None:
    """Name the argument that is of another class. An optimizer that a framework has wrapped may be of any."""
    call = "vcycle.apply(step, model, optimizer, clips)"
    check_kind("step", step, Step, call)
    check_kind("model", model, nn.Module, call)
    check_kind("optimizer", optimizer, torch.optim.Optimizer, call)


def _unconverted(step: Step, model: nn.Module, rank: int | None, world: int | None) -> Iterator[str]:
    """Names of unconverted BatchNorms that would normalise over more clips than a group of the step has."""
    _, ranks = rank_and_world(rank, world)
    for name, layer in model.named_modules():
        if not isinstance(layer, _BatchNorm) or isinstance(layer, SubBatchNorm) or not layer.training:
            continue
        clips = step.batch if isinstance(layer, nn.SyncBatchNorm) else -(-step.batch // ranks)
        if clips > step.bn_batch:
            yield name or "model"
