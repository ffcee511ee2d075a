"""Optimizers, with parameter groups by role: what decays, and what a plan treats apart."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from vcycle.errors import RecipeError

__all__ = ["OptimizerSpec", "parameter_groups"]

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # _NormBase: of every BatchNorm and InstanceNorm


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """Which optimizer and its constants; the LR comes from the plan, step by step."""

    name: str = "sgd"
    """`sgd` (with momentum) or `adamw`."""
    momentum: float = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Whether SGD's momentum is Nesterov's."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Averages of AdamW."""
    weight_decay: float = 1e-4
    """Decay of weights that are neither biases nor norms."""

    def build(self, model: nn.Module, role_of: Callable[[str], str | None] = lambda _: None) -> torch.optim.Optimizer:
        """The optimizer of a model.

        Raises:
            RecipeError: for an unknown name.
        """
        groups = parameter_groups(model, weight_decay=self.weight_decay, role_of=role_of)
        if self.name == "sgd":
            return torch.optim.SGD(groups, lr=0.0, momentum=self.momentum, nesterov=self.nesterov)
        if self.name == "adamw":
            return torch.optim.AdamW(groups, lr=0.0, betas=self.betas)
        raise RecipeError(f"optimizer {self.name!r} is unknown: sgd or adamw")


def parameter_groups(
    model: nn.Module, *, weight_decay: float, role_of: Callable[[str], str | None] = lambda _: None
) -> list[dict[str, Any]]:
    """Parameters grouped by role and by whether they decay; norms and biases do not.

    Groups depend on roles and names alone, never on the class of a norm, so that a checkpoint fits whatever
    way BatchNorm is computed.

    Args:
        model: The model.
        weight_decay: Decay of the groups that decay.
        role_of: The plan's role of a parameter, from its name.
    """
    groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter, in_norm in _parameters(model):
        decays = not in_norm and not name.endswith("bias")
        groups.setdefault((role_of(name) or "", decays), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0, "role": role or None}
        for (role, decays), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


def _parameters(model: nn.Module) -> Iterable[tuple[str, nn.Parameter, bool]]:
    """Every trainable parameter once: its name, itself, whether it belongs to a norm."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{prefix}.{name}".removeprefix("."), parameter, isinstance(module, _NORMS)
