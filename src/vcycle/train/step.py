"""One training step: forward, backward, all-reduce of the gradients, clipping, optimizer step, EMA update.

The batch is an ordered list, and it defines everything: BatchNorm's blocks, which clips are mixed, the mean loss. Each
rank takes a slice of the batch, and each micro-batch a slice of that (gradient accumulation). Gradients, running
statistics and, without dropout, weights equal those of one process that computes the whole batch at once, to rounding.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from vcycle.data import Batch
from vcycle.errors import VcycleError
from vcycle.nn import TokenDropping, apply, drop_tokens, one_step, require_token_dropping
from vcycle.nn.batchnorm import Commitment, SubBatchNorm
from vcycle.nn.partition import BatchPartition
from vcycle.plan import BatchShape, Plan, Step
from vcycle.train.accelerator import Accelerator, MixedPrecision, may_overflow
from vcycle.train.calling import calling
from vcycle.train.gradients import StepResult, clip_gradients, gradient_norm, step_if
from vcycle.train.graphs import Recorder, on_cuda
from vcycle.train.objective import Objective
from vcycle.train.ranks import Ranks
from vcycle.train.shards import is_sharded, set_reshard
from vcycle.train.speed import Speed, compile_failures, compiled, eagerly, lists_kept_empty
from vcycle.train.state import TrainState

__all__ = ["TrainStep", "refuse_shared_mixing"]


class TrainStep:
    """Steps of a model on a device: call it with a step of the plan and this rank's clips of the batch."""

    def __init__(
        self,
        accelerator: Accelerator,
        objective: Objective,
        state: TrainState,
        ranks: Ranks,
        *,
        clip_grad_norm: float | None = None,
        speed: Speed = Speed(),  # noqa: B008 -- frozen
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Set up steps for a model on its device and its optimizer.

        Args:
            accelerator: The device and the precision.
            objective: The loss.
            state: The model, its optimizer and what belongs to them.
            ranks: The ranks that train together.
            clip_grad_norm: Gradients with a larger norm are scaled down to this one.
            speed: Options that make steps faster.
            on_message: Called with each batch shape that has been compiled or recorded.

        Raises:
            VcycleError: if this device or run does not support an option of `speed`.
        """
        self.sharded = is_sharded(state.model)
        """Whether the model is sharded over ranks, so all of them must compute together."""
        speed.refuse(
            accelerator.device,
            world=ranks.world,
            mixes=objective.mixes,
            drops=state.plan.drops_tokens,
            sharded=self.sharded,
        )
        self._accelerator, self._objective, self._state, self._ranks = accelerator, objective, state, ranks
        state.scaler = accelerator.scaler
        self._clip = clip_grad_norm
        self._speed, self._tell = speed, on_message
        self._ready: set[BatchShape] = set()
        model = state.model
        require_token_dropping(model, state.plan)
        self._can_drop = any(isinstance(module, TokenDropping) for module in model.modules())
        shapes = len(state.plan.shapes)
        self._norms = [module for module in model.modules() if isinstance(module, SubBatchNorm)]
        if speed.compile and self._norms:
            _refuse_shared_compiled(state.plan, ranks)
        self._recorder = Recorder(model, on_cuda()) if speed.graphs else None
        # Only the network is compiled, not the gradient exchange between ranks.
        self._shared = _over_ranks(compiled(model, shapes) if speed.compile else model, ranks, speed.compress)
        self._forward = MixedPrecision(self._shared, accelerator, model)
        self._forward.register_forward_pre_hook(self._reseed)
        self._dropout_seed: int | None = None
        self.micro: dict[BatchShape, int] = {}
        """Clips of this rank in a micro-batch (whole blocks), by batch shape. A shape that is not listed is computed at
        once."""

    def __call__(self, step: Step, batch: Batch) -> StepResult:
        """Train on this rank's clips of a batch.

        If the loss or a gradient is not finite, the update is skipped: weights, optimizer state and running statistics
        stay as they are.
        """
        state, accelerator, optimizer = self._state, self._accelerator, self._state.optimizer
        scaler = accelerator.scaler
        with self._gradients(step, batch) as (loss, commitment):
            if scaler is not None:
                scaler.unscale_(optimizer)
            norm = gradient_norm(optimizer, sharded=self.sharded)
            made = torch.isfinite(loss) & torch.isfinite(norm).to(loss.device)
            if scaler is not None:
                made = made | may_overflow(loss, scaler)
            commitment.keep = bool(made) if made.device.type == "cpu" else made
        if self._clip is not None:
            clip_gradients(optimizer, norm, self._clip)
        if scaler is None:
            step_if(made, optimizer)
        else:
            accelerator.step(optimizer)  # skips the step and lowers the scale if a gradient has overflowed
        optimizer.zero_grad()
        if state.ema is not None:
            state.ema.update(state.model, step.batch)
        return StepResult(loss, made, norm)

    @contextmanager
    def _gradients(self, step: Step, batch: Batch, *, exchange: bool = True) -> Iterator[tuple[Tensor, Commitment]]:
        """Compute a step's gradients; yield its loss, and the flag that commits the running statistics at exit."""
        self._objective.check(batch.labels)
        state, ranks = self._state, self._ranks
        apply(step, state.model, state.optimizer, rank=ranks.rank, world=ranks.world, seed=state.seed)
        clips, labels = (self._accelerator.to_device(tensor) for tensor in (batch.clips, batch.labels))
        own, micro = len(batch.labels), self.micro.get(step.cell, len(batch.labels))
        parts = list(zip(torch.split(clips, micro), torch.split(labels, micro), strict=True))
        total = torch.zeros((), device=self._accelerator.device)
        with one_step(state.model, self._sharing(step)) as commitment:
            for place, (some, of_these) in enumerate(parts):
                self._seed(step, place)
                if place:  # `apply` has done it for the first
                    self._drop_tokens(state.model, step, place * micro)
                with self._exchanging(step, exchange and place == len(parts) - 1):
                    share = len(some) / step.batch
                    loss = self._backward(step, share, some, of_these)
                    total = loss if share == 1 else total + loss * share
            if exchange and own != step.batch:
                distributed.all_reduce(total)
            yield total, commitment

    def _backward(self, step: Step, share: float, clips: Tensor, labels: Tensor) -> Tensor:
        """Forward and backward pass of a share of the batch; return the mean loss of the share."""

        def work(clips: Tensor, labels: Tensor) -> Tensor:
            loss = self._objective.loss(self._forward, clips, labels, block=step.bn_batch)
            # DistributedDataParallel averages gradients over ranks.
            self._accelerator.backward(loss if share == 1 else loss * (share * self._ranks.world))
            return loss.detach()

        with ExitStack() as stack:
            where = f"at step {step.index:,} ({step.cell})"
            stack.enter_context(calling(self._state.model, where, self._objective))
            if self._speed.compile:
                stack.enter_context(compile_failures(step.cell))
                stack.enter_context(lists_kept_empty(self._norms))
            if self._recorder is None:
                return work(clips, labels)
            self._reseed()  # here: a recording draws from the generator in its current state
            self._dropout_seed = None
            return self._recorder((clips.shape, step.bn_batch, share), work, clips, labels)

    def rehearse(self, step: Step, batch: Batch) -> None:
        """Compute a step's gradients and drop them.

        DistributedDataParallel orders its gradient buckets by its first step, and the order decides the last bits of
        sums. After a rehearsal, a resumed run has the same order as an uninterrupted one. Sharded models need none.
        """
        if self.sharded:
            return
        with self._gradients(step, batch) as (_, commitment):
            commitment.keep = False
        self._state.optimizer.zero_grad()

    def attempt(self, step: Step, batch: Batch) -> None:
        """Take a step with this rank's clips to see whether it fits into memory; the caller undoes the update.

        Gradients are not exchanged, so each rank may attempt any shape. If blocks span ranks or the model is sharded,
        all ranks must attempt the same shape together.
        """
        with self._gradients(step, batch, exchange=self.sharded) as (_, commitment):
            commitment.keep = False
        self._accelerator.step(self._state.optimizer)
        self._state.optimizer.zero_grad()
        self._ready.add(step.cell)
        if self._speed.done is not None:
            self._tell(f"{self._speed.done} {len(self._ready)} of {len(self._state.plan.shapes)}: {step.cell}")

    def is_ready(self, cell: BatchShape) -> bool:
        """Whether a batch shape needs no preparation, or was attempted already."""
        return self._speed.done is None or cell in self._ready

    def predict(self, step: Step, batch: Batch) -> Tensor:
        """The evaluated model's output for this rank's clips of a batch; running statistics stay as they are."""
        model = self._state.evaluated
        average = None if model is self._state.model else MixedPrecision(model, self._accelerator, model)
        self._drop_tokens(model, step)
        with one_step(model, self._sharing(step)) as commitment:
            commitment.keep = False
            set_reshard(model, parted=False, last=True)
            with eagerly(self._speed):
                return self._objective.predict(average or self._forward, self._accelerator.to_device(batch.clips))

    def _sharing(self, step: Step) -> BatchPartition | None:
        ranks = self._ranks
        return None if ranks.world == 1 else BatchPartition.of(step, rank=ranks.rank, world=ranks.world)

    def _exchanging(self, step: Step, last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients only in the last micro-batch."""
        if self.sharded:
            set_reshard(self._state.model, parted=self._is_parted(step), last=last)
        return (
            self._shared.no_sync() if isinstance(self._shared, DistributedDataParallel) and not last else nullcontext()
        )

    def _is_parted(self, step: Step) -> bool:
        """Whether any rank splits a step into several micro-batches."""
        sharing, micro = self._sharing(step), self.micro.get(step.cell)
        return sharing is not None and micro is not None and max(sharing.clips) > micro

    def _drop_tokens(self, model: nn.Module, step: Step, first: int = 0) -> None:
        """Set the tokens that a model's next forward pass keeps, whose first clip is number `first` of this rank's."""
        if self._can_drop:  # also for a plan that keeps all: the shapes of another one may be tried or timed
            ranks = self._ranks
            drop_tokens(model, step, seed=self._state.seed, first=first, rank=ranks.rank, world=ranks.world)

    def _seed(self, step: Step, place: int) -> None:
        """Seed a micro-batch: mixing draws the same on every rank, dropout differs by rank and micro-batch."""
        seed = _step_seed(self._state.seed, step.index)
        if self._accelerator.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a millisecond for absent accelerators
        else:
            torch.manual_seed(seed)
        rank = self._ranks.rank
        self._dropout_seed = _step_seed(self._state.seed, step.index, rank, place) if rank or place else None

    def _reseed(self, *_: Any) -> None:
        if self._dropout_seed is not None:
            torch.manual_seed(self._dropout_seed)


def _refuse_shared_compiled(plan: Plan, ranks: Ranks) -> None:
    """Reject `run.compile` if a BatchNorm layer would have to exchange statistics between ranks."""
    for cell in plan.shapes if ranks.world > 1 else ():
        if not BatchPartition.of(cell, rank=ranks.rank, world=ranks.world).has_whole_blocks(cell.bn_batch):
            raise VcycleError(
                f"run.compile is true, but BatchNorm blocks of {cell.bn_batch} clips of the batch {cell} span several "
                f"of the {ranks.world} ranks: set run.compile=false, reduce training.bn_batch or use fewer ranks"
            )


def refuse_shared_mixing(objective: Objective, plan: Plan, ranks: Ranks) -> None:
    """Reject mixup and CutMix if BatchNorm blocks, within which clips are mixed, span several ranks.

    Raises:
        VcycleError: naming the first such batch.
    """
    if ranks.world == 1 or not objective.mixes:
        return
    for cell in plan.shapes:
        if not BatchPartition.of(cell, rank=ranks.rank, world=ranks.world).has_whole_blocks(cell.bn_batch):
            raise VcycleError(
                f"augment.mixup and augment.cutmix mix clips within a block of {cell.bn_batch} (training.bn_batch), "
                f"but blocks of the batch {cell} span several of the {ranks.world} ranks: reduce training.bn_batch or "
                "use fewer ranks"
            )


def _over_ranks(model: nn.Module, ranks: Ranks, compress: Literal["fp16", "bf16"] | None) -> nn.Module:
    """Wrap the model in DistributedDataParallel if several ranks hold it."""
    if ranks.world == 1 or is_sharded(model):
        return model
    # Buffers already agree on all ranks: running statistics are committed from the same numbers.
    renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # PyTorch 2.13 and newer
    unsynchronised: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    shared = DistributedDataParallel(model, gradient_as_bucket_view=True, **unsynchronised)
    if compress is not None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
        shared.register_comm_hook(None, hooks[compress])
    return shared


def _step_seed(seed: int, step: int, *place: int) -> int:
    """The seed of the device's generator at a step, for dropout: a function of the step, so nothing is saved."""
    return zlib.crc32(json.dumps([seed, step, *place]).encode()) | (step << 32)
