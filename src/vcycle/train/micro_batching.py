"""Finds the micro-batch size of each batch shape, before the first step and again if memory runs out later.

A shape that does not fit is computed in micro-batches of whole BatchNorm blocks (gradient accumulation), with the same
gradients and statistics. The sizes are saved in the run folder, so that a resumed run uses the same ones.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vcycle.data import Batch
from vcycle.errors import VcycleError
from vcycle.nn import apply
from vcycle.nn.batchnorm import SubBatchNorm
from vcycle.plan import BatchShape, Plan, Step, rank_slice
from vcycle.train.gradients import StepResult
from vcycle.train.memory import is_out_of_memory, memory_of, release, undone
from vcycle.train.objective import Objective, noise_batch
from vcycle.train.ranks import Ranks
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep
from vcycle.utils.atomic import atomic_text
from vcycle.utils.reading import read_text

__all__ = [
    "MicroBatchRecord",
    "MicroBatchSearch",
    "MicroBatchSize",
    "largest_that_fits",
    "micro_batch_sizes",
    "shapes_from",
]

_LR = 1e-9
"""LR of a trial step. At 0, frozen roles would not use the memory that they need later."""


def micro_batch_sizes(clips: int, block: int) -> list[int]:
    """The possible micro-batch sizes of a batch, in clips, largest first: whole BatchNorm blocks.

    Of all sizes that give the same number of micro-batches, only the smallest is listed: it needs the least memory.

    Args:
        clips: Clips in the batch.
        block: Clips in a block; the last of a batch may be smaller.

    >>> micro_batch_sizes(60, 8)
    [60, 32, 24, 16, 8]
    """
    blocks = -(-clips // block)
    sizes = dict.fromkeys(-(-blocks // parts) * block for parts in range(1, blocks + 1))
    return [min(size, clips) for size in sizes]


def largest_that_fits(sizes: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The largest size that fits, found by bisection; None if none does.

    Args:
        sizes: The sizes, largest first. The first one is tried first, as it usually fits.
        fits: Whether a size fits. Every smaller size must fit too.

    >>> largest_that_fits([64, 32, 24, 16, 8], lambda size: size <= 30)
    24
    """
    if fits(sizes[0]):
        return sizes[0]
    low, high = 1, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if fits(sizes[middle]):
            high = middle
        else:
            low = middle + 1
    return sizes[low] if low < len(sizes) else None


def shapes_from(plan: Plan, start: int) -> list[BatchShape]:
    """The distinct batch shapes of the steps from `start` on, largest first."""
    found: dict[BatchShape, None] = {}
    first = 0
    for stage in plan.stages:
        begin, end, length = max(first, start), first + stage.steps, len(stage.pattern)
        found |= dict.fromkeys(stage.pattern[step % length] for step in range(begin, min(end, begin + length)))
        first = end
    return sorted(found, key=lambda cell: -cell.work)


@dataclass(frozen=True, kw_only=True)
class MicroBatchSize:
    """The micro-batch size of a batch shape."""

    micro: int
    """The most clips that a rank computes at a time; the size of the global batch if it needs no micro-batches."""
    peak: int | None = None
    """Peak GPU memory in bytes, over all ranks; None if it was not measured."""


class MicroBatchRecord:
    """The micro-batch sizes of a run, in a small file: valid for the same kind and number of devices."""

    def __init__(self, path: Path, place: Mapping[str, Any] | None = None) -> None:
        """Store the path of the file and the description of the devices; None to read those of any."""
        self._path, self._place = path, None if place is None else dict(place)

    def read(self) -> dict[BatchShape, MicroBatchSize]:
        """Read the sizes; empty if the file is missing, unreadable or about other devices."""
        try:
            said = json.loads(read_text(self._path))
            if self._place is not None and said["devices"] != self._place:
                return {}
            return {
                BatchShape(**line["shape"]): MicroBatchSize(micro=line["micro"], peak=line["peak"])
                for line in said["fits"]
            }
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return {}

    def write(self, fits: Mapping[BatchShape, MicroBatchSize]) -> None:
        """Write the sizes to the file.

        Raises:
            VcycleError: if it cannot be written.
        """
        lines = [{"shape": asdict(cell), "micro": fit.micro, "peak": fit.peak} for cell, fit in fits.items()]
        atomic_text(self._path, json.dumps({"devices": self._place, "fits": lines}, indent=1) + "\n")


class MicroBatchSearch:
    """Training steps that fit into memory: calls a `TrainStep` and sets its micro-batch sizes."""

    def __init__(
        self,
        train_step: TrainStep,
        objective: Objective,
        state: TrainState,
        *,
        device: torch.device,
        ranks: Ranks,
        resumed: bool,
        on_message: Callable[[str], None],
        on_shortage: Callable[[Step, str], None],
    ) -> None:
        """Load the sizes that the run has recorded.

        Args:
            train_step: Computes steps; from now on, call it only through this object.
            objective: Makes dummy batches for trial steps.
            state: The training state.
            device: The training device.
            ranks: The ranks that train together, all of which call this.
            resumed: Whether the run resumes, and so may have a record.
            on_message: Called with the result of the search, on every rank.
            on_shortage: Called with the step at which memory ran out, and the remedy.
        """
        self._train_step, self._objective, self._state = train_step, objective, state
        self._device, self._ranks = device, ranks
        self._tell, self._tell_shortage = on_message, on_shortage
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        self._memory = memory_of(device)
        place = {"name": name, "memory": self._memory, "ranks": ranks.world}
        self._record = MicroBatchRecord(state.run.fit, place | ({"sharded": True} if train_step.sharded else {}))
        self._fits = ranks.from_first(self._record.read) if resumed else {}
        for cell in self._fits:
            self._apply_size(cell)
        self._learning = False
        state.optimizer.register_step_pre_hook(self._note_learning)

    def try_shapes(self, start: int, on_attempt: Callable[[BatchShape], object] = lambda _: None) -> None:
        """Try every batch shape of the steps from `start` on whose size is unknown; the model stays as it is.

        Args:
            start: The first step.
            on_attempt: Called with the shape before each attempt.

        Raises:
            VcycleError: naming a shape that does not fit at any size.
        """
        state = self._state
        cells = [cell for cell in shapes_from(state.plan, start) if cell not in self._fits]
        if not cells:
            return
        state.model.train()
        steps = [attempted(state.plan[start], cell) for cell in cells]
        with undone(state.model, state.optimizer, self._device, state.scaler):
            self._hold_optimizer(steps[0])
            found = [self._try(step, cell, on_attempt) for step, cell in zip(steps, cells, strict=True)]
        release(self._device)
        table = self._ranks.all_gather_ints([number for pair in found for number in pair])
        for place, cell in enumerate(cells):
            micro, peak = min(row[2 * place] for row in table), max(row[2 * place + 1] for row in table)
            if micro == 0:
                raise self._too_large(cell)
            self._fits[cell] = MicroBatchSize(micro=micro, peak=peak or None)
            self._apply_size(cell)
        if self._ranks.first:
            self._record.write(self._fits)
        self._tell(self._found(cells))

    def __call__(self, step: Step, batch: Batch) -> StepResult:
        """Train on this rank's clips of a batch, as `TrainStep` does; use smaller micro-batches once memory runs out.

        Raises:
            VcycleError: if no micro-batch is small enough, or the step cannot be redone.
        """
        while True:
            self._learning = False
            try:
                return self._train_step(step, batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            self._make_room(step, len(batch.labels))  # not above: the error being handled holds the step's memory

    def _make_room(self, step: Step, own: int) -> None:
        """Compute the shape of a step in smaller micro-batches from now on."""
        self._state.optimizer.zero_grad()
        release(self._device)
        cell = step.cell
        at = f" at step {step.index:,}"
        if self._learning:
            raise VcycleError(
                f"memory ran out{at} ({cell}) while the optimizer changed the weights, so the step cannot be redone: "
                f"resume from the last checkpoint with --resume on a device with more memory{self._here()}"
            )
        now = min(self._train_step.micro.get(cell, own), own)
        smaller = [size for size in self._sizes(cell) if size < now]
        if not smaller:
            raise self._too_large(cell, at)
        size = next((size for size in smaller if size <= now // 2), smaller[-1])
        self._fits[cell] = MicroBatchSize(micro=size)
        self._apply_size(cell)
        self._record.write(self._fits)  # on this rank: the first may be waiting for it
        found = f"memory ran out{at}: from now on {_parted(cell, size)}"
        self._tell(found)
        self._tell_shortage(step, found)
        if self._ranks.world > 1:
            raise VcycleError(
                f"{found}. Rank {self._ranks.rank} cannot redo the step while others wait for it: resume from the "
                "last checkpoint with --resume"
            )

    def _try(self, step: Step, cell: BatchShape, on_attempt: Callable[[BatchShape], object]) -> tuple[int, int]:
        """The micro-batch size of this rank (the global batch if all its clips fit, 0 if none) and the peak bytes."""
        if self._train_step.sharded:
            return self._try_together(step, cell, on_attempt)
        sizes = self._sizes(cell)
        peaks: dict[int, int] = {}

        def fits(size: int) -> bool:
            on_attempt(cell)
            self._train_step.micro[cell] = size
            peak = self._peak(step, sizes[0])
            if peak is not None:
                peaks[size] = peak
            return peak is not None

        size = largest_that_fits(sizes, fits)
        del self._train_step.micro[cell]
        if size is None:
            if self._is_shared(cell):  # the other ranks wait for this one within the step
                raise self._too_large(cell)
            return 0, 0
        return cell.batch if size == sizes[0] else size, peaks[size]

    def _try_together(
        self, step: Step, cell: BatchShape, on_attempt: Callable[[BatchShape], object]
    ) -> tuple[int, int]:
        """As `_try`, for a sharded model: all ranks try together, and a shape that does not fit on one ends all."""
        own = self._sizes(cell)[0]
        on_attempt(cell)
        peak = self._peak(step, own)
        if peak is None:
            self._learning = False  # the trial is undone
            self._make_room(step, own)
        return cell.batch, peak or 0

    def _peak(self, step: Step, own: int) -> int | None:
        """Peak GPU memory in bytes of a step with `own` clips (0 on a CPU); None if it does not fit."""
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        try:
            self._train_step.attempt(step, noise_batch(self._objective, own, step.shape))
            return torch.cuda.max_memory_allocated(self._device) if on_gpu else 0
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        self._state.optimizer.zero_grad()
        release(self._device)
        return None

    def _hold_optimizer(self, step: Step) -> None:
        """Make the optimizer allocate its state, as its first step does."""
        apply(step, self._state.model, self._state.optimizer)
        try:
            for group in self._state.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            self._state.optimizer.step()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise VcycleError(f"the model and its optimizer do not fit into memory{self._here()}") from error
        self._state.optimizer.zero_grad()

    def _sizes(self, cell: BatchShape) -> list[int]:
        """The possible micro-batch sizes of this rank's clips, largest first."""
        own = len(rank_slice(cell.batch, cell.bn_batch, self._ranks.rank, self._ranks.world))
        if not self._has_blocks():
            return micro_batch_sizes(own, 1)
        return [own] if self._is_shared(cell) else micro_batch_sizes(own, cell.bn_batch)

    def _is_shared(self, cell: BatchShape) -> bool:
        """Whether BatchNorm blocks span ranks, so that they must compute the batch together."""
        world = self._ranks.world
        first = [rank_slice(cell.batch, cell.bn_batch, rank, world).start for rank in range(world)]
        return self._has_blocks() and any(place % cell.bn_batch for place in first)

    def _has_blocks(self) -> bool:
        """Whether clips of a batch depend on each other, by BatchNorm or by mixing."""
        return self._objective.mixes or any(
            isinstance(layer, SubBatchNorm) and (layer.training or layer.running_mean is None)
            for layer in self._state.model.modules()
        )

    def _apply_size(self, cell: BatchShape) -> None:
        """Set the micro-batch size of a shape in the training step."""
        if self._fits[cell].micro < cell.batch:
            self._train_step.micro[cell] = self._fits[cell].micro

    def _note_learning(self, *_: Any) -> None:
        self._learning = True

    def _found(self, cells: Sequence[BatchShape]) -> str:
        """A message with the result of trying some shapes."""
        peak = max(self._fits[cell].peak or 0 for cell in cells)
        most = f", peak memory {peak / 2**30:.1f} GiB of {self._memory / 2**30:.1f}" if peak else ""
        parted = [_parted(cell, self._fits[cell].micro) for cell in cells if self._fits[cell].micro < cell.batch]
        how = "; ".join(parted) if parted else "all fit"
        return f"batch shapes tried: {len(cells)}{most}; {how}"

    def _too_large(self, cell: BatchShape, at: str = "") -> VcycleError:
        least = self._sizes(cell)[-1]
        fewer = "reduce training.bn_batch, " if self._has_blocks() and least > 1 else ""
        return VcycleError(
            f"{cell} does not fit into memory{at}{self._here()}, not even in micro-batches of {least} clips: "
            f"set run.precision=bf16, {fewer}reduce training.size or training.frames, or use more ranks"
        )

    def _here(self) -> str:
        return f" ({self._memory / 2**30:.1f} GiB)"


def _parted(cell: BatchShape, clips: int) -> str:
    return f"{cell} is computed in micro-batches of {clips} clips, with the same result"


def attempted(first: Step, cell: BatchShape) -> Step:
    """A step at a batch shape with a negligible LR and no frozen roles."""
    roles = tuple((role, 1.0) for role, _ in first.role_factors)
    return replace(first.at(cell), lr=_LR, role_factors=roles)
