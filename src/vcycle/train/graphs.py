"""CUDA graphs: records the forward and backward pass of a step once for each batch shape, and replays it.

Small steps are launch-bound: the host needs longer to launch hundreds of kernels than the device to run them. A graph
is launched at once. It repeats the same kernels on the same memory, so everything that changes from step to step must
be in that memory: clips and labels are copied into it, gradients are added into it, dropout follows the device's
generator as always. Python's decisions (the LR, which clips are mixed) stay outside of the graph.
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
"""Forward and backward pass: takes clips and labels, returns the loss."""
Record = Callable[[Callable[[], Tensor]], tuple[Tensor, Callable[[], None]]]
"""Records a function: returns its result, and a function that replays it."""

_WARM_UPS = 3
"""Warm-up runs before recording, in which libraries choose their algorithms and allocate memory."""


def on_cuda() -> Record:
    """A recorder on the current CUDA device. All recordings share memory, so they must be replayed one at a time."""
    pool: Any = torch.cuda.graph_pool_handle()

    def record(work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            found = work()
        return found, graph.replay

    return record


@dataclass(frozen=True, kw_only=True)
class _Recording:
    """A recorded pass, and the memory that it reads and writes."""

    clips: Tensor
    labels: Tensor
    loss: Tensor
    moments: Sequence[tuple[SubBatchNorm, Moments]]
    """The moments of each BatchNorm whose statistics are committed later."""
    play: Callable[[], None]


class Recorder:
    """Runs the forward and backward pass of a step; records it the first time, and replays it afterwards.

    Gradients are accumulated. Every parameter then has a gradient, of zeros if nothing reached it.
    """

    def __init__(self, model: nn.Module, record: Record) -> None:
        """Create a recorder without recordings.

        Args:
            model: The model. Its parameters must keep their memory, and so must gradients once there is a recording.
            record: How to record, such as `on_cuda()`.
        """
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._norms = [module for module in model.modules() if isinstance(module, SubBatchNorm)]
        self._record = record
        self._gradients: list[Tensor] = []
        self._recordings: dict[Hashable, _Recording] = {}

    def __call__(self, key: Hashable, work: Work, clips: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, and accumulate its gradients.

        Args:
            key: Everything in `work` that Python decides: shapes, and factors that are not tensors.
            work: Forward and backward pass; the same for the same key.
            clips: The clips, on the device.
            labels: The labels, on the device.
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
        """Set every parameter's `grad` to the tensor that recordings write to."""
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
        """Record `work`; gradients, statistics and the random generator stay as they were."""
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
        """Hand each BatchNorm a copy of its moments: the next replay overwrites the originals."""
        if not moments:
            return
        flat = torch._foreach_mul([part for _, each in moments for part in (each.mean, each.m2)], 1)
        for place, (norm, each) in enumerate(moments):
            pending = norm._pending
            if pending is not None:
                pending.append(Moments(each.values, flat[2 * place], flat[2 * place + 1]))


@contextmanager
def _aside(device: torch.device) -> Iterator[None]:
    """Run the context on a side stream, as CUDA graphs need for warm-up; on a CPU, just run it."""
    if device.type != "cuda":
        yield
        return
    stream: torch.cuda.Stream = torch.cuda.Stream(device)
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)
