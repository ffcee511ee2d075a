"""The device of this process and the arithmetic on it: fp32, or mixed precision (autocast) in bf16 or fp16.

fp16 has few numbers near zero, so the loss is multiplied before its gradients are computed, and they are divided again
(a gradient scaler). A factor that was too large makes gradients overflow: the step is skipped, the factor halved.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import VcycleError
from vcycle.nn import conv3d_is_sound
from vcycle.nn.precision import DTYPES
from vcycle.train.config import RunSection
from vcycle.train.memory import grow_in_place, keep_freed
from vcycle.train.ranks import Ranks
from vcycle.train.speed import let_cudnn_choose

__all__ = ["Accelerator", "MixedPrecision", "make_accelerator", "may_overflow", "slowness"]


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A device, and how to compute on it."""

    device: torch.device
    """Where to compute."""
    dtype: torch.dtype | None = None
    """What autocast computes in; None for full precision."""
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss, in fp16."""

    def to_device(self, tensor: Tensor) -> Tensor:
        """A tensor on the device; the host does not wait for a copy from pinned memory."""
        return tensor.to(self.device, non_blocking=self.device.type != "cpu")

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in mixed precision, if that is chosen."""
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradients to those that parameters have, scaled where there is a scaler."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take an optimizer's step; with a scaler, unless a gradient has overflowed, which lowers the scale."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()


class MixedPrecision(nn.Module):
    """A network whose forward pass runs under autocast; what goes in and comes out of it is in full precision."""

    def __init__(self, network: Callable[..., Any], accelerator: Accelerator, model: nn.Module) -> None:
        """Wrap a network.

        Args:
            network: What is called: the model, compiled or not, shared over ranks or not.
            accelerator: Where it computes, and in which precision.
            model: The model itself, whose attributes this has as well.
        """
        super().__init__()
        self.network = network
        self._accelerator = accelerator
        self._model = (model,)  # not registered a second time

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_model"][0], name)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the network gives."""
        if self._accelerator.dtype is None:
            return self.network(*inputs, **options)
        inputs = tuple(_in_full(value) for value in inputs)
        with self._accelerator.autocast():
            found = self.network(*inputs, **{key: _in_full(value) for key, value in options.items()})
        return _in_full(found)


def _in_full(value: Any) -> Any:
    """A value in fp32, if it is a tensor of floats; those in a tuple, a list or a dictionary, too."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _in_full(inner) for key, inner in value.items()}
    return type(value)(map(_in_full, value)) if type(value) in (tuple, list) else value


def make_accelerator(run: RunSection, model: nn.Module | None = None, ranks: Ranks | None = None) -> Accelerator:
    """The device that a run asks for, and its precision; also makes torch's allocators keep memory between shapes.

    Args:
        run: Which device and precision.
        model: What is to be trained. Without 3-D convolutions, their arithmetic is not checked.
        ranks: The ranks that train together, each on a device of its own.

    Raises:
        VcycleError: if the device is not there, or its arithmetic cannot be trusted at this precision.
    """
    if run.device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("run.device is cuda, and torch finds no CUDA device: cpu or auto")
    kind = "cuda" if run.device != "cpu" and torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        grow_in_place()
        let_cudnn_choose()
    else:
        keep_freed()
    _check_precision(run.precision, kind, model)
    local = 0 if ranks is None else ranks.local
    if kind == "cuda" and local >= torch.cuda.device_count():
        raise VcycleError(
            f"rank {local} of this machine has no GPU of its own: there are {torch.cuda.device_count()}; as many "
            "processes or fewer are accepted (torchrun --nproc-per-node)"
        )
    device = torch.device("cuda", local) if kind == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return Accelerator(
        device=device,
        dtype=DTYPES.get(run.precision),
        scaler=torch.amp.GradScaler(kind) if run.precision == "fp16" else None,
    )


def _check_precision(name: str, device: str, model: nn.Module | None) -> None:
    """Refuse a precision in which a device computes wrong gradients.

    Raises:
        VcycleError: if it does.
    """
    conv3d = model is None or any(isinstance(module, nn.Conv3d) for module in model.modules())
    if name in DTYPES and conv3d and not conv3d_is_sound(torch.device(device), DTYPES[name]):
        raise VcycleError(
            f"run.precision is {name}, and this {device} computes wrong conv3d weight gradients in {name} for clips "
            "of few frames, which coarse grids have: fp32"
        )


def slowness(name: str, device: torch.device) -> str | None:
    """What to say of a precision that makes a device slow; None of others.

    Args:
        name: `fp32`, `bf16` or `fp16`.
        device: Where it is computed.
    """
    if name != "fp16" or device.type != "cpu":
        return None
    return "run.precision is fp16, which a CPU computes many times slower than fp32: run.precision=fp32 is faster here"


def may_overflow(loss: Tensor, scaler: torch.amp.GradScaler) -> Tensor:
    """Whether gradients that overflow may be put down to their scale, a boolean on the device.

    Not where the loss itself is not finite, nor once the scale has fallen below 1: they would overflow in fp32, too.

    Args:
        loss: Of the whole batch.
        scaler: Multiplies it.
    """
    return torch.isfinite(loss) & (scaler.scale(torch.ones_like(loss)) >= 1)
