"""Faster steps: `torch.compile` and CUDA graphs for each batch shape. Results are equal to rounding.

A plan has few batch shapes, known in advance, so each is compiled or recorded before the first step. Training time does
not include it.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from vcycle.errors import VcycleError
from vcycle.nn.batchnorm import SubBatchNorm
from vcycle.nn.moments import Moments
from vcycle.plan import BatchShape

__all__ = ["Speed", "compile_failures", "compiled", "eagerly", "let_cudnn_choose", "lists_kept_empty"]

_BACKEND = "inductor"
_VARIANTS = 4
"""How often a batch shape may be compiled: a last micro-batch may be smaller, and memory may run out later."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Options that make steps faster."""

    compile: bool = False
    """Compile the model, once for each batch shape."""
    graphs: bool = False
    """Record the forward and backward pass of each batch shape as a CUDA graph."""
    compress: Literal["fp16", "bf16"] | None = None
    """Dtype that gradients are rounded to when ranks exchange them."""

    @property
    def done(self) -> str | None:
        """How a batch shape is prepared, in a word; None if it is not."""
        words = ["compiled"] * self.compile + ["recorded"] * self.graphs
        return " and ".join(words) or None

    def refuse(
        self, device: torch.device, *, world: int, mixes: bool, drops: bool = False, sharded: bool = False
    ) -> None:
        """Reject options that this device or run does not support.

        Args:
            device: The training device.
            world: Number of ranks.
            mixes: Whether the objective mixes clips (mixup, CutMix).
            drops: Whether the plan drops tokens.
            sharded: Whether the model is sharded over ranks.

        Raises:
            VcycleError: naming the key and what is accepted.
        """
        if self.compile and sharded:
            raise VcycleError(
                "run.compile and run.shard are both true, but sharding gathers parameters during the forward pass, "
                "which cannot be compiled: set one of them to false"
            )
        if self.compile and device.type == "cpu" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
            raise VcycleError(
                f"run.compile is true, but there is no C++ compiler ({compiler}), which compiling for a CPU needs: "
                "install one, or set run.compile=false"
            )
        if not self.graphs:
            return
        reason = None
        if device.type != "cuda":
            reason = "this run is on a CPU, which has no CUDA graphs"
        elif world > 1:
            reason = f"gradients are exchanged between {world} ranks, which is not recorded"
        elif mixes:
            reason = "augment.mixup and augment.cutmix draw anew at each step, which a recording cannot"
        elif drops:
            reason = "the plan drops other tokens at each step, which a recording cannot"
        if reason is not None:
            raise VcycleError(f"run.graphs is true, but {reason}: set run.graphs=false")


def let_cudnn_choose() -> None:
    """Enable cuDNN's benchmark mode, as a plan has few shapes, unless deterministic algorithms are on."""
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()


def compiled(model: nn.Module, shapes: int) -> Any:
    """Compile a model separately for each batch shape; the model itself stays as it is.

    Args:
        model: Any module.
        shapes: Number of batch shapes.
    """
    from torch._dynamo import config  # takes a second

    # PyTorch 2.7 and newer say recompile_limit; these names are understood by all.
    config.cache_size_limit = max(config.cache_size_limit, _VARIANTS * shapes)
    config.accumulated_cache_size_limit = max(config.accumulated_cache_size_limit, 64 * _VARIANTS * shapes)
    # Dropout draws as it does in eager mode.
    return torch.compile(model, dynamic=False, backend=_BACKEND, options={"fallback_random": True})


def eagerly(speed: Speed) -> AbstractContextManager[Any]:
    """Run a compiled model in eager mode, for calls that are not worth compiling."""
    return torch.compiler.set_stance("force_eager") if speed.compile else nullcontext()


@contextmanager
def compile_failures(cell: BatchShape) -> Iterator[None]:
    """Report a compiler error with the batch shape and a remedy.

    Raises:
        VcycleError: naming the batch shape.
    """
    try:
        yield
    except Exception as error:
        from torch._dynamo.exc import TorchDynamoException  # not above: it takes a second

        if not isinstance(error, TorchDynamoException):
            raise
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise VcycleError(f"{cell} cannot be compiled ({said}): set run.compile=false") from error


@contextmanager
def lists_kept_empty(norms: Sequence[SubBatchNorm]) -> Iterator[None]:
    """Empty the lists of pending BatchNorm moments within the context: each list length would compile anew."""
    gathered: list[list[Moments]] = [list(norm._pending or ()) for norm in norms]
    for norm in norms:
        if norm._pending is not None:
            norm._pending.clear()
    try:
        yield
    finally:
        for norm, before in zip(norms, gathered, strict=True):
            if norm._pending is not None:
                norm._pending[:0] = before
