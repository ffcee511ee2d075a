"""Sub-batch BatchNorm, the models, and the call that brings both to a step of the plan.

Names load on first use: asking the catalog what a model needs imports no torch.
"""

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
    from vcycle.nn.catalog import build, names, needs
    from vcycle.nn.freezing import freeze
    from vcycle.nn.models.head import fully_convolutional
    from vcycle.nn.selfcheck import conv3d_is_sound
    from vcycle.nn.sharing import Sharing
    from vcycle.nn.steps import apply

__all__ = [
    "Sharing",
    "SubBatchNorm",
    "apply",
    "build",
    "conv3d_is_sound",
    "convert_batchnorm",
    "freeze",
    "fully_convolutional",
    "names",
    "needs",
    "one_step",
    "revert_batchnorm",
    "set_bn_batch",
]

_HOMES = {
    "Sharing": "sharing",
    "SubBatchNorm": "batchnorm",
    "apply": "steps",
    "conv3d_is_sound": "selfcheck",
    "build": "catalog",
    "convert_batchnorm": "batchnorm",
    "freeze": "freezing",
    "fully_convolutional": "models.head",
    "names": "catalog",
    "needs": "catalog",
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
