"""Sub-batch BatchNorm, freezing, and `apply`, which applies a step of the plan to a model."""

from typing import TYPE_CHECKING

from vcycle.utils.lazy import lazy_names

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
    from vcycle.nn.positions import any_shape, shape_constraints
    from vcycle.nn.selfcheck import conv3d_is_sound
    from vcycle.nn.steps import apply
    from vcycle.nn.tokens import TokenDropping, drop_tokens, require_token_dropping

__all__ = [
    "BatchPartition",
    "PlanLR",
    "SubBatchNorm",
    "TokenDropping",
    "any_shape",
    "apply",
    "conv3d_is_sound",
    "convert_batchnorm",
    "drop_tokens",
    "freeze",
    "one_step",
    "require_token_dropping",
    "revert_batchnorm",
    "set_bn_batch",
    "shape_constraints",
]

_MODULES = {
    **dict.fromkeys(
        ("SubBatchNorm", "convert_batchnorm", "one_step", "revert_batchnorm", "set_bn_batch"), ".batchnorm"
    ),
    "freeze": ".freezing",
    "BatchPartition": ".partition",
    "PlanLR": ".plan_lr",
    **dict.fromkeys(("any_shape", "shape_constraints"), ".positions"),
    "conv3d_is_sound": ".selfcheck",
    "apply": ".steps",
    **dict.fromkeys(("TokenDropping", "drop_tokens", "require_token_dropping"), ".tokens"),
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
