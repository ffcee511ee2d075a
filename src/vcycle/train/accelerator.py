"""The device of this process and its precision: fp32, or mixed precision (autocast) in bf16 or fp16.

Small gradients underflow in fp16, so a gradient scaler multiplies the loss and divides the gradients again. If the
scale is too large and gradients overflow, the scaler skips the step and halves the scale.
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
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.speed import let_cudnn_choose

__all__ = ["Accelerator", "MixedPrecision", "check_own_gpu", "make_accelerator", "may_overflow", "slowness"]


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A device and its precision."""

    device: torch.device
    """The device."""
    dtype: torch.dtype | None = None
    """The dtype of autocast; None for full precision."""
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss, in fp16."""

    def to_device(self, tensor: Tensor) -> Tensor:
        """A tensor on the device; the host does not wait for a copy from pinned memory."""
        return tensor.to(self.device, non_blocking=self.device.type != "cpu")

    def autocast(self) -> AbstractContextManager[Any]:
        """Autocast to mixed precision, if it is on."""
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradients of a loss, scaled if there is a scaler."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step an optimizer. If a gradient has overflowed, a scaler skips the step and lowers its scale."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()


class MixedPrecision(nn.Module):
    """A network whose forward pass runs under autocast; its inputs and outputs are in full precision."""

    def __init__(self, network: Callable[..., Any], accelerator: Accelerator, model: nn.Module) -> None:
        """Wrap a network.

        Args:
            network: The model as it is called: compiled or not, wrapped for data parallel or not.
            accelerator: The device and the precision.
            model: The model itself; the wrapper exposes its attributes.
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
        """Run the network."""
        if self._accelerator.dtype is None:
            return self.network(*inputs, **options)
        inputs = tuple(_in_full(value) for value in inputs)
        with self._accelerator.autocast():
            found = self.network(*inputs, **{key: _in_full(value) for key, value in options.items()})
        return _in_full(found)


def _in_full(value: Any) -> Any:
    """Convert floating-point tensors to fp32, also those in a tuple, a list or a dictionary."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _in_full(inner) for key, inner in value.items()}
    return type(value)(map(_in_full, value)) if type(value) in (tuple, list) else value


def make_accelerator(run: RunSection, model: nn.Module | None = None, ranks: Ranks | None = None) -> Accelerator:
    """Make the accelerator of a run, and configure torch's allocators to keep memory between shapes.

    Args:
        run: The options, of which `device` and `precision` count.
        model: The model to train. Its precision is only checked if it has 3-D convolutions.
        ranks: The ranks that train together, each on its own device.

    Raises:
        VcycleError: if the device is missing, or computes wrong gradients at this precision.
    """
    if run.device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("run.device is cuda, but torch finds no CUDA device: set run.device to cpu or auto")
    kind = "cuda" if run.device != "cpu" and torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        grow_in_place()
        let_cudnn_choose()
    else:
        keep_freed()
    _check_precision(run.precision, kind, model)
    local = 0 if ranks is None else ranks.local
    device = torch.device("cuda", local) if kind == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        check_own_gpu(ranks or SINGLE_PROCESS, device)
        torch.cuda.set_device(device)
    return Accelerator(
        device=device,
        dtype=DTYPES.get(run.precision),
        scaler=torch.amp.GradScaler(kind) if run.precision == "fp16" else None,
    )


def check_own_gpu(ranks: Ranks, device: torch.device) -> None:
    """Check that each rank has a GPU of its own, which the exchange of tensors between GPUs needs.

    Raises:
        VcycleError: if this rank has none.
    """
    if device.type == "cuda" and ranks.local >= torch.cuda.device_count():
        raise VcycleError(
            f"local rank {ranks.local} has no GPU: this machine has {torch.cuda.device_count()}; start at most one "
            "process per GPU (torchrun --nproc-per-node)"
        )


def _check_precision(name: str, device: str, model: nn.Module | None) -> None:
    """Reject a precision at which the device computes wrong gradients.

    Raises:
        VcycleError: if it does.
    """
    conv3d = model is None or any(isinstance(module, nn.Conv3d) for module in model.modules())
    if name in DTYPES and conv3d and not conv3d_is_sound(torch.device(device), DTYPES[name]):
        raise VcycleError(
            f"run.precision is {name}, but this {device} computes wrong conv3d weight gradients in {name} for clips "
            "of few frames, which coarse grids have: set run.precision=fp32"
        )


def slowness(name: str, device: torch.device) -> str | None:
    """A warning if a precision is slow on a device; None if it is not.

    Args:
        name: `fp32`, `bf16` or `fp16`.
        device: The device.
    """
    if name != "fp16" or device.type != "cpu":
        return None
    return "run.precision is fp16, which a CPU computes many times slower than fp32: run.precision=fp32 is faster here"


def may_overflow(loss: Tensor, scaler: torch.amp.GradScaler) -> Tensor:
    """Whether the loss scale may explain gradients that overflow; a boolean on the device.

    It does not if the loss itself is not finite, or once the scale is below 1: they would then overflow in fp32 too.

    Args:
        loss: The loss of the whole batch.
        scaler: The gradient scaler.
    """
    return torch.isfinite(loss) & (scaler.scale(torch.ones_like(loss)) >= 1)
