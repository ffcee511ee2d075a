"""Bringing a model and its optimizer to a step of the plan: the one call per step of a user's own loop."""

import torch
from torch import nn

from vcycle.nn.batchnorm import set_bn_batch, sub_batch_layers
from vcycle.plan import Step

__all__ = ["apply"]


def apply(step: Step, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Set the learning rates and the BatchNorm sub-batch of a step.

    A parameter group may carry ``role`` (a role of the plan's laws, None if absent) and ``lr_scale`` (a constant
    factor, 1 if absent).

    Args:
        step: ``plan[index]``.
        model: a model, converted by :func:`vcycle.nn.convert_batchnorm` or not.
        optimizer: any optimizer; its groups' ``lr`` are overwritten, whatever they were made with.

    Example:
        >>> from types import SimpleNamespace
        >>> layer = nn.Linear(2, 2)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        >>> apply(SimpleNamespace(bn_batch=8, lr_of=lambda role: 0.25), layer, optimizer)
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """
    for group in optimizer.param_groups:
        lr = step.lr_of(group.get("role")) * group.get("lr_scale", 1.0)
        if isinstance(group["lr"], torch.Tensor):  # a captured or compiled optimizer reads this very tensor
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    if any(layer.bn_batch != step.bn_batch for layer in sub_batch_layers(model)):
        set_bn_batch(model, step.bn_batch)
