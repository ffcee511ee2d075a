"""One optimizer update: of a global batch, whatever it is computed by.

The batch is an ordered list, and everything is defined on it: BatchNorm's blocks, what is mixed with what, the mean
that the loss is. Ranks take slices of it and micro-batches slices of those; gradients, running statistics and, without
dropout, weights are those of one process that computes it at once, to rounding.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from inspect import signature
from typing import Any, Literal, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from vcycle.data import Batch
from vcycle.errors import VcycleError
from vcycle.nn import apply, one_step
from vcycle.nn.batchnorm import Commitment, SubBatchNorm
from vcycle.nn.sharing import Sharing
from vcycle.plan import BatchShape, Plan, Shape, Step
from vcycle.train.graphs import Recorder, on_cuda
from vcycle.train.nonfinite import Learned, finite, step_if
from vcycle.train.precision import may_overflow, scaler_of
from vcycle.train.ranks import Ranks
from vcycle.train.shards import hold_parts, is_sharded
from vcycle.train.speed import Speed, compile_failures, compiled, eagerly, lists_kept_empty
from vcycle.train.state import TrainState

__all__ = ["Task", "Update", "noise_batch", "refuse_shared_mixing"]


class Task(Protocol):
    """What the loop asks of a task. Labels are whatever a model's output is compared with."""

    @property
    def mixes(self) -> bool:
        """Whether clips are mixed with others of their block."""
        ...

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, /, *, block: int | None = None) -> Tensor:
        """The mean loss of a batch; what is mixed is mixed within blocks of so many clips, by default the batch."""
        ...

    def check(self, labels: Tensor, /) -> None:
        """Refuse labels, still on the host, that are not of this task."""
        ...

    def noise(self, batch: int, shape: Shape, device: torch.device, /) -> tuple[Tensor, Tensor]:
        """Clips and labels of no meaning, to try and to measure with."""
        ...

    def predict(self, model: nn.Module, clips: Tensor, /) -> Tensor:
        """What a model makes of a batch's clips, without augmentation."""
        ...


def noise_batch(task: Task, clips: int, shape: Shape) -> Batch:
    """A batch of no meaning, on the host as a loader gives it: to try and to measure with."""
    inputs, labels = task.noise(clips, shape, torch.device("cpu"))
    nowhere = torch.full((clips,), -1)
    return Batch(clips=inputs, labels=labels, indices=nowhere, positions=nowhere, replaced=[], faults=[])


class Update:
    """Updates of a model, on the device and at the precision that Fabric was asked for."""

    def __init__(
        self,
        fabric: Fabric,
        task: Task,
        state: TrainState,
        ranks: Ranks,
        *,
        speed: Speed = Speed(),  # noqa: B008 -- frozen
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take over a model on its device, and its optimizer.

        Args:
            fabric: The device and the precision.
            task: The loss.
            state: What is trained.
            ranks: Those that train together.
            speed: What makes steps faster.
            on_message: Told of each batch shape that is made ready for it.

        Raises:
            VcycleError: if steps cannot be made faster in that way here.
        """
        self.sharded = is_sharded(state.model)
        """Whether ranks have parts of the model, so that all that is computed with it is computed by all together."""
        speed.refuse(fabric.device, world=ranks.world, mixes=task.mixes, sharded=self.sharded)
        self._fabric, self._task, self._state, self._ranks = fabric, task, state, ranks
        state.scaler = scaler_of(fabric)
        self._speed, self._tell = speed, on_message
        self._ready: set[BatchShape] = set()
        model = state.model
        shapes = len(state.plan.shapes)
        self._norms = [module for module in model.modules() if isinstance(module, SubBatchNorm)]
        if speed.compile and self._norms:
            _refuse_shared_compiled(state.plan, ranks)
        self._recorder = Recorder(model, on_cuda()) if speed.graphs else None
        # The network alone is compiled: how ranks exchange its gradients stays as it is.
        self._shared = _over_ranks(compiled(model, shapes) if speed.compile else model, ranks, speed.compress)
        self._forward, self._optimizer = fabric.setup(self._shared, state.optimizer, move_to_device=False)
        self._forward.register_forward_pre_hook(self._reseed)
        self._dropout_seed: int | None = None
        self.micro: dict[tuple[int, Shape], int] = {}
        """Clips of this rank in a micro-batch, whole blocks of them, by the global batch and its shape; all at once for
        those that are not here."""

    def __call__(self, step: Step, batch: Batch) -> Learned:
        """Learn from this rank's clips of a batch, unless what they would teach is not finite.

        Then weights, the optimizer's state and running statistics stay as they are.
        """
        scaler = self._state.scaler
        with self._step(step, batch) as (loss, commitment):
            kept = finite(loss, self._state.optimizer)
            if self.sharded:
                kept = _everywhere(kept)
            if scaler is not None:
                kept = kept | may_overflow(loss, scaler)
            commitment.keep = bool(kept) if kept.device.type == "cpu" else kept
        if scaler is None:
            step_if(kept, self._optimizer, self._state.optimizer)
        else:
            self._optimizer.step()  # unless a gradient has overflowed, which lowers the scale
        self._optimizer.zero_grad()
        if self._state.ema is not None:
            self._state.ema.update(self._state.model, step.batch)
        return Learned(loss, kept)

    def rehearse(self, step: Step, batch: Batch) -> None:
        """Compute a step's gradients and forget them.

        DistributedDataParallel orders what it exchanges by its first step, and the order decides the last bits of sums:
        after a rehearsal, a resumed run's are those of a run from the beginning. Sharded models need none.
        """
        if self.sharded:
            return
        with self._step(step, batch) as (_, commitment):
            commitment.keep = False
        self._optimizer.zero_grad()

    def attempt(self, step: Step, batch: Batch) -> None:
        """Take a step with this rank's clips, to see whether it fits; what it learns is for the caller to undo.

        Gradients are not exchanged, so that each rank may attempt what it likes; where blocks lie on several ranks, or
        the model does, all must attempt the same together.
        """
        with self._step(step, batch, exchange=self.sharded) as (_, commitment):
            commitment.keep = False
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._ready.add(_cell(step))
        if self._speed.done is not None:
            self._tell(f"{self._speed.done} {len(self._ready)} of {len(self._state.plan.shapes)}: {_cell(step)}")

    def is_ready(self, cell: BatchShape) -> bool:
        """Whether a batch shape has nothing left to be made ready, or was attempted."""
        return self._speed.done is None or cell in self._ready

    def predict(self, step: Step, batch: Batch) -> Tensor:
        """What the model makes of this rank's clips of a batch; running statistics stay as they are."""
        with one_step(self._state.model, self._sharing(step)) as commitment:
            commitment.keep = False
            hold_parts(self._state.model, parted=False, last=True)
            with eagerly(self._speed):
                return self._task.predict(self._forward, self._fabric.to_device(batch.clips))

    @contextmanager
    def _step(self, step: Step, batch: Batch, *, exchange: bool = True) -> Iterator[tuple[Tensor, Commitment]]:
        """Compute a step's gradients: its loss, and whether the running statistics are to be committed at the end."""
        self._task.check(batch.labels)
        apply(step, self._state.model, self._state.optimizer)
        clips, labels = self._fabric.to_device((batch.clips, batch.labels))
        own, micro = len(batch.labels), self.micro.get((step.batch, step.shape), len(batch.labels))
        parts = list(zip(torch.split(clips, micro), torch.split(labels, micro), strict=True))
        total = torch.zeros((), device=self._fabric.device)
        with one_step(self._state.model, self._sharing(step)) as commitment:
            for place, (some, of_these) in enumerate(parts):
                self._seed(step, place)
                with self._exchanging(step, exchange and place == len(parts) - 1):
                    share = len(some) / step.batch
                    loss = self._backward(step, share, some, of_these)
                    total = loss if share == 1 else total + loss * share
            if exchange and own != step.batch:
                distributed.all_reduce(total)
            yield total, commitment

    def _backward(self, step: Step, share: float, clips: Tensor, labels: Tensor) -> Tensor:
        """Forward and backward of a share of the batch: its own mean loss."""

        def work(clips: Tensor, labels: Tensor) -> Tensor:
            loss = self._task.loss(self._forward, clips, labels, block=step.bn_batch)
            # DistributedDataParallel takes the mean over ranks.
            self._fabric.backward(loss if share == 1 else loss * (share * self._ranks.world))
            return loss.detach()

        with ExitStack() as stack:
            if self._speed.compile:
                stack.enter_context(compile_failures(_cell(step)))
                stack.enter_context(lists_kept_empty(self._norms))
            if self._recorder is None:
                return work(clips, labels)
            self._reseed()  # here, as what is recorded draws from the generator as it finds it
            self._dropout_seed = None
            return self._recorder((clips.shape, step.bn_batch, share), work, clips, labels)

    def _sharing(self, step: Step) -> Sharing | None:
        ranks = self._ranks
        return None if ranks.world == 1 else Sharing.of(step, rank=ranks.rank, world=ranks.world)

    def _exchanging(self, step: Step, last: bool) -> AbstractContextManager[Any]:
        """Gradients are exchanged once, with those of the last micro-batch."""
        if self.sharded:
            hold_parts(self._state.model, parted=self._is_parted(step), last=last)
        return (
            self._shared.no_sync() if isinstance(self._shared, DistributedDataParallel) and not last else nullcontext()
        )

    def _is_parted(self, step: Step) -> bool:
        """Whether any rank computes a step in several micro-batches."""
        sharing, micro = self._sharing(step), self.micro.get((step.batch, step.shape))
        return sharing is not None and micro is not None and max(sharing.clips) > micro

    def _seed(self, step: Step, place: int) -> None:
        """Key what is drawn in a micro-batch: what is mixed as on any rank, dropout by rank and micro-batch."""
        torch.manual_seed(_step_seed(self._state.seed, step.index))
        rank = self._ranks.rank
        self._dropout_seed = _step_seed(self._state.seed, step.index, rank, place) if rank or place else None

    def _reseed(self, *_: Any) -> None:
        if self._dropout_seed is not None:
            torch.manual_seed(self._dropout_seed)


def _refuse_shared_compiled(plan: Plan, ranks: Ranks) -> None:
    """Refuse to compile BatchNorm's exchange of statistics within a layer."""
    for cell in plan.shapes if ranks.world > 1 else ():
        if not Sharing.of(cell, rank=ranks.rank, world=ranks.world).has_whole_blocks(cell.bn_batch):
            raise VcycleError(
                f"run.compile is true, and blocks of {cell.bn_batch} clips of a batch of {cell} lie on several of the "
                f"{ranks.world} ranks: false, a smaller training.bn_batch or fewer ranks are accepted"
            )


def _cell(step: Step) -> BatchShape:
    return BatchShape(frames=step.shape.frames, size=step.shape.size, batch=step.batch, bn_batch=step.bn_batch)


def refuse_shared_mixing(task: Task, plan: Plan, ranks: Ranks) -> None:
    """Refuse to mix clips with others of their block where blocks lie on several ranks.

    Raises:
        VcycleError: naming the first batch of which they do.
    """
    if ranks.world == 1 or not task.mixes:
        return
    for cell in plan.shapes:
        if not Sharing.of(cell, rank=ranks.rank, world=ranks.world).has_whole_blocks(cell.bn_batch):
            raise VcycleError(
                f"augment.mixup and augment.cutmix mix clips of one block of {cell.bn_batch} (training.bn_batch), and "
                f"blocks of a batch of {cell} lie on several of the {ranks.world} ranks: a smaller training.bn_batch "
                "or fewer ranks are accepted"
            )


def _everywhere(kept: Tensor) -> Tensor:
    """Whether something holds on every rank, a boolean on the device."""
    found = kept.to(torch.uint8)
    distributed.all_reduce(found, distributed.ReduceOp.MIN)
    return found.bool()


def _over_ranks(model: nn.Module, ranks: Ranks, compress: Literal["fp16", "bf16"] | None) -> nn.Module:
    """The model with its gradients exchanged between ranks."""
    if ranks.world == 1 or is_sharded(model):
        return model
    # Buffers are equal on all ranks already: running statistics are committed from the same numbers.
    renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # PyTorch 2.13 and newer
    unsynchronised: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    shared = DistributedDataParallel(model, gradient_as_bucket_view=True, **unsynchronised)
    if compress is not None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
        shared.register_comm_hook(None, hooks[compress])
    return shared


def _step_seed(seed: int, step: int, *place: int) -> int:
    """The device generator's seed at a step: dropout is keyed too, so that nothing is left to save."""
    return zlib.crc32(json.dumps([seed, step, *place]).encode()) | (step << 32)
