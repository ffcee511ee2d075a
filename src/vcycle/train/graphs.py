"""CUDA graphs: a step's forward and backward passes recorded once for each batch shape, and played back.

A small step is bound by its launches: the host needs longer to hand hundreds of kernels over than the device to run
them. A recording is handed over at once. It repeats the very same kernels on the very same memory, so whatever differs
from step to step has to lie in that memory: clips and labels are copied into it, gradients are added into it, dropout
follows the device's generator as always. What Python alone decides (an LR, what is mixed with what) is left outside.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.nn.batchnorm import SubBatchNorm
from vcycle.nn.moments import Moments

__all__ = ["Recorder", "on_cuda"]

Work = Callable[[Tensor, Tensor], Tensor]
"""Forward and backward: of clips and labels, the loss."""
Record = Callable[[Callable[[], Tensor]], tuple[Tensor, Callable[[], None]]]
"""Records a piece of work: what it gives, and what does it again."""

_WARM_UPS = 3
"""Times that work is done before it is recorded: libraries choose their algorithms and take their memory."""


def on_cuda() -> Record:
    """What records on the current CUDA device; all recordings share memory, so they must be played one by one."""
    pool: Any = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            found = work()
        return found, graph.replay

    return record


@dataclass(frozen=True, kw_only=True)
class _Recording:
    """A recorded piece of work, and the memory that it reads and writes."""

    clips: Tensor
    labels: Tensor
    loss: Tensor
    moments: Sequence[tuple[SubBatchNorm, Moments]]
    """What it gives to each BatchNorm whose statistics are committed later."""
    play: Callable[[], None]


class Recorder:
    """Does a step's forward and backward, from the second time on by playing them back.

    Gradients are added to those that parameters have. Every parameter then has one, of zeros if nothing reached it.
    """

    def __init__(self, model: nn.Module, record: Record) -> None:
        """Record nothing yet.

        Args:
            model: What is trained; its parameters, and its gradients from the first recording on, stay where they are.
            record: How to record, such as `on_cuda()`.
        """
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._norms = [module for module in model.modules() if isinstance(module, SubBatchNorm)]
        self._record = record
        self._gradients: list[Tensor] = []
        self._recordings: dict[Hashable, _Recording] = {}

    def __call__(self, key: Hashable, work: Work, clips: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch, its gradients added.

        Args:
            key: What of the work Python decides: its shapes, and factors that are no tensors.
            work: Forward and backward; the same for the same key.
            clips: On the device.
            labels: On the device.
        """
        self._attach()
        found = self._recordings.get(key)
        if found is None:
            found = self._recordings[key] = self._recorded(work, clips, labels)
        found.clips.copy_(clips)
        found.labels.copy_(labels)
        found.play()
        self._hand_over(found.moments)
        return found.loss.clone()

    def _attach(self) -> None:
        """Give every parameter its gradient, which is where recordings expect it."""
        if not self._gradients:
            self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
        fresh = []
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is not gradient:
                parameter.grad = gradient
                fresh.append(gradient)
        if fresh:
            torch._foreach_zero_(fresh)

    def _recorded(self, work: Work, clips: Tensor, labels: Tensor) -> _Recording:
        """Record a piece of work; gradients, statistics and the device's draws are as before."""
        clips, labels = clips.clone(), labels.clone()
        kept = [gradient.clone() for gradient in self._gradients]
        gathering = [(norm, norm._pending) for norm in self._norms if norm._pending is not None]
        before = [len(gathered) for _, gathered in gathering]
        state = torch.cuda.get_rng_state(clips.device) if clips.is_cuda else torch.get_rng_state()
        with _aside(clips.device):
            for _ in range(_WARM_UPS):
                work(clips, labels)
        for (_, gathered), count in zip(gathering, before, strict=True):
            del gathered[count:]
        loss, play = self._record(lambda: work(clips, labels))
        moments = []
        for (norm, gathered), count in zip(gathering, before, strict=True):
            moments += [(norm, each) for each in gathered[count:]]
            del gathered[count:]
        torch._foreach_copy_(self._gradients, kept)
        if clips.is_cuda:
            torch.cuda.set_rng_state(state, clips.device)
        else:
            torch.set_rng_state(state)
        return _Recording(clips=clips, labels=labels, loss=loss, moments=moments, play=play)

    @staticmethod
    def _hand_over(moments: Sequence[tuple[SubBatchNorm, Moments]]) -> None:
        """Let each BatchNorm have its moments, copied: the next time, they are overwritten."""
        if not moments:
            return
        flat = torch._foreach_mul([part for _, each in moments for part in (each.mean, each.m2)], 1)
        for place, (norm, each) in enumerate(moments):
            pending = norm._pending
            if pending is not None:
                pending.append(Moments(each.values, flat[2 * place], flat[2 * place + 1]))


@contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Do work on a stream of its own, as what is to be recorded must be tried; on a CPU, just do it."""
    if device.type != "cuda":
        yield
        return
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)
