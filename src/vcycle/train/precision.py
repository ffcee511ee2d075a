"""The arithmetic of forward and backward: fp32, or the larger part of it in bf16 or fp16 (autocast).

fp16 has few numbers near zero, so the loss is multiplied before its gradients are taken, and they are divided again
(a gradient scaler). A factor that was too large makes gradients overflow: the step is left out, the factor halved.
"""

from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision, Precision
from torch import Tensor, nn

from vcycle.errors import VcycleError
from vcycle.nn import conv3d_is_sound
from vcycle.nn.precision import DTYPES

__all__ = ["may_overflow", "precision_of", "scaler_of", "slowness"]


def precision_of(name: str, device: str, model: nn.Module | None) -> Precision:
    """How Fabric is to compute.

    Args:
        name: `fp32`, `bf16` or `fp16`.
        device: `cpu` or `cuda`.
        model: What is to be trained; one without 3-D convolutions needs none that can be trusted.

    Raises:
        VcycleError: if the device's arithmetic cannot be trusted at this precision.
    """
    if name not in DTYPES:
        return Precision()
    conv3d = model is None or any(isinstance(module, nn.Conv3d) for module in model.modules())
    if conv3d and not conv3d_is_sound(torch.device(device), DTYPES[name]):
        raise VcycleError(
            f"run.precision is {name}, and this {device} computes wrong conv3d weight gradients in {name} for clips "
            "of few frames, which coarse grids have: fp32"
        )
    if name == "bf16":
        return MixedPrecision("bf16-mixed", device)
    return MixedPrecision("16-mixed", device, scaler=torch.amp.GradScaler(device))


def slowness(name: str, device: torch.device) -> str | None:
    """What to tell of a precision that makes a device slow; None of others.

    Args:
        name: `fp32`, `bf16` or `fp16`.
        device: Where it is computed.
    """
    if name != "fp16" or device.type != "cpu":
        return None
    return "run.precision is fp16, which a CPU computes many times slower than fp32: run.precision=fp32 is faster here"


def scaler_of(fabric: Fabric) -> torch.amp.GradScaler | None:
    """The gradient scaler, where the precision needs one."""
    scaler: Any = getattr(fabric.strategy.precision, "scaler", None)
    return scaler if isinstance(scaler, torch.amp.GradScaler) else None


def may_overflow(loss: Tensor, scaler: torch.amp.GradScaler) -> Tensor:
    """Whether gradients that overflow may be put down to their scale, a boolean on the device.

    Not where the loss itself is not finite, nor once the scale has fallen below 1: they would overflow in fp32, too.

    Args:
        loss: Of the whole batch.
        scaler: Multiplies it.
    """
    return torch.isfinite(loss) & (scaler.scale(torch.ones_like(loss)) >= 1)
