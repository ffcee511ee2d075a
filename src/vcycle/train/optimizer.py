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
    """`sgd` (with momentum), `adam` or `adamw`."""
    momentum: float = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Whether SGD's momentum is Nesterov's."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Averages of Adam and AdamW."""
    weight_decay: float = 1e-4
    """Decay of weights that are neither biases nor norms."""

    def __post_init__(self) -> None:
        if self.name == "sgd" and self.nesterov and not self.momentum:
            raise RecipeError(
                "optimizer.nesterov is true, and optimizer.momentum is 0: Nesterov's needs a momentum above 0"
            )

    def build(
        self, model: nn.Module, role_of: Callable[[str], str | None] = lambda _: None, *, fused: bool = False
    ) -> torch.optim.Optimizer:
        """The optimizer of a model; a role whose LR is 0 is not updated at all.

        Args:
            model: The model.
            role_of: The plan's role of a parameter, from its name.
            fused: Update all parameters in one kernel. It rounds differently.

        Raises:
            RecipeError: for an unknown name.
        """
        groups = parameter_groups(model, weight_decay=self.weight_decay, role_of=role_of)
        optimizer = self._plain(groups, fused)
        if any(group["role"] is not None for group in groups):
            optimizer.register_step_pre_hook(_leave_frozen)
        return optimizer

    def _plain(self, groups: list[dict[str, Any]], fused: bool) -> torch.optim.Optimizer:
        how: dict[str, Any] = {"lr": 0.0, "fused": True} if fused else {"lr": 0.0}
        if self.name == "sgd":
            return torch.optim.SGD(groups, **how, momentum=self.momentum, nesterov=self.nesterov)
        if self.name == "adam":
            return torch.optim.Adam(groups, **how, betas=self.betas)
        if self.name == "adamw":
            return torch.optim.AdamW(groups, **how, betas=self.betas)
        raise RecipeError(f"optimizer {self.name!r} is unknown: sgd, adam or adamw")


def _leave_frozen(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Forget the gradients of roles that are frozen.

    An LR of 0 keeps the weights, but not Adam's averages: those of gradients long past would steer the first steps
    after. The parameters go on having gradients, so that DistributedDataParallel finds none missing.
    """
    for group in optimizer.param_groups:
        if group.get("role") is not None and group["lr"] == 0:
            for parameter in group["params"]:
                parameter.grad = None


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
