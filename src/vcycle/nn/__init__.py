"""Sub-batch BatchNorm, freezing, and `apply`, which applies a step of the plan to a model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcycle.nn.batchnorm import (
        SubBatchNorm,
        convert_batchnorm,
        one_step,
        revert_batchnorm,
        set_bn_batch,
    )
    from vcycle.nn.freezing import freeze
    from vcycle.nn.partition import BatchPartition
    from vcycle.nn.plan_lr import PlanLR
    from vcycle.nn.selfcheck import conv3d_is_sound
    from vcycle.nn.steps import apply

__all__ = [
    "BatchPartition",
    "PlanLR",
    "SubBatchNorm",
    "apply",
    "conv3d_is_sound",
    "convert_batchnorm",
    "freeze",
    "one_step",
    "revert_batchnorm",
    "set_bn_batch",
]

_HOMES = {
    "BatchPartition": "partition",
    "PlanLR": "plan_lr",
    "SubBatchNorm": "batchnorm",
    "apply": "steps",
    "conv3d_is_sound": "selfcheck",
    "convert_batchnorm": "batchnorm",
    "freeze": "freezing",
    "one_step": "batchnorm",
    "revert_batchnorm": "batchnorm",
    "set_bn_batch": "batchnorm",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
