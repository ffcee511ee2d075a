"""Steps that take less time: compiled for each batch shape, or recorded and played back. Results are equal to rounding.

A plan has few batch shapes, known in advance, so each is made ready before the first step, and the clock does not run.
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
"""Times that a batch shape may be compiled: a last micro-batch may be smaller, and memory may run out later."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What makes steps faster."""

    compile: bool = False
    """Compile the model, once for each batch shape."""
    graphs: bool = False
    """Record each batch shape's forward and backward as a CUDA graph."""
    compress: Literal["fp16", "bf16"] | None = None
    """What gradients are rounded to on their way between ranks."""

    @property
    def done(self) -> str | None:
        """What is done to a batch shape, in a word; None for nothing."""
        words = ["compiled"] * self.compile + ["recorded"] * self.graphs
        return " and ".join(words) or None

    def refuse(self, device: torch.device, *, world: int, mixes: bool, sharded: bool = False) -> None:
        """Refuse what cannot be done here.

        Args:
            device: Where it is trained.
            world: How many ranks there are.
            mixes: Whether clips are mixed with others.
            sharded: Whether ranks have parts of the model.

        Raises:
            VcycleError: naming the key and what is accepted.
        """
        if self.compile and sharded:
            raise VcycleError(
                "run.compile is true, and so is run.shard, which puts parameters together while the network computes: "
                "false is accepted for one of them"
            )
        if self.compile and device.type == "cpu" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
            raise VcycleError(
                f"run.compile is true, and there is no C++ compiler ({compiler}), which a CPU needs: false is accepted"
            )
        if not self.graphs:
            return
        reason = None
        if device.type != "cuda":
            reason = "this run is on a CPU, which has no CUDA graphs"
        elif world > 1:
            reason = f"gradients are exchanged between {world} ranks, which is not recorded"
        elif mixes:
            reason = "augment.mixup and augment.cutmix draw anew at each step, which a recording does not"
        if reason is not None:
            raise VcycleError(f"run.graphs is true, and {reason}: false is accepted")


def let_cudnn_choose() -> None:
    """Have cuDNN try its algorithms at each new shape, of which a plan has few; not where a user wants determinism."""
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()


def compiled(model: nn.Module, shapes: int) -> Any:
    """A model compiled for each batch shape as it comes; the model itself stays as it is.

    Args:
        model: Any.
        shapes: How many batch shapes there are.
    """
    from torch._dynamo import config  # takes a second

    config.recompile_limit = max(config.recompile_limit, _VARIANTS * shapes)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 64 * _VARIANTS * shapes)
    # Dropout draws as it does uncompiled.
    return torch.compile(model, dynamic=False, backend=_BACKEND, options={"fallback_random": True})


def eagerly(speed: Speed) -> AbstractContextManager[Any]:
    """Run what is compiled as it is written: for calls that are not worth compiling for."""
    return torch.compiler.set_stance("force_eager") if speed.compile else nullcontext()


@contextmanager
def compile_failures(cell: BatchShape) -> Iterator[None]:
    """Say of a compiler's failure what helps.

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
        raise VcycleError(f"{cell} cannot be compiled ({said}): run.compile=false trains without") from error


@contextmanager
def lists_kept_empty(norms: Sequence[SubBatchNorm]) -> Iterator[None]:
    """Put what BatchNorms have gathered aside, for a while: code is compiled anew for every length of a list."""
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
