"""Making each batch shape fit into memory: found out before the first step, and again where memory runs out later.

A shape that is too large is computed in micro-batches of whole BatchNorm blocks, which gives the same gradients and
statistics. How many clips at a time is written into the run's folder, so that a resumed run repeats itself.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Of a step that is only tried. At 0, what a role has frozen would not take the memory that it takes later."""


def micro_batch_sizes(clips: int, block: int) -> list[int]:
    """The sizes that micro-batches of a batch may have, in clips, largest first: whole BatchNorm blocks.

    Of the sizes that give as many micro-batches, only the smallest is of use: it needs the least memory.

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
    """The largest of some sizes that fits, found by bisection; None if none does.

    Args:
        sizes: Largest first. The first is tried first, as it mostly fits.
        fits: Whether one does. Whatever is smaller than one that fits does, too.

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
    return sorted(found, key=lambda cell: -cell.voxels)


@dataclass(frozen=True, kw_only=True)
class MicroBatchSize:
    """How a batch shape fits into memory."""

    micro: int
    """The most clips that a rank computes at a time; all that it has where this is the whole batch."""
    peak: int | None = None
    """The most bytes of a GPU's memory in use at once, on any rank; None where it was not measured."""


class MicroBatchRecord:
    """What a run has found out, in a small file: of use on like devices, and as many of them."""

    def __init__(self, path: Path, place: Mapping[str, Any]) -> None:
        """Name the file, and what describes the devices."""
        self._path, self._place = path, dict(place)

    def read(self) -> dict[BatchShape, MicroBatchSize]:
        """What is known; nothing where the file is not there or cannot be read, or is about other devices."""
        try:
            said = json.loads(read_text(self._path))
            if said["devices"] != self._place:
                return {}
            return {
                BatchShape(**line["shape"]): MicroBatchSize(micro=line["micro"], peak=line["peak"])
                for line in said["fits"]
            }
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return {}

    def write(self, fits: Mapping[BatchShape, MicroBatchSize]) -> None:
        """Write down what is known.

        Raises:
            VcycleError: if it cannot be written.
        """
        lines = [
            {
                "shape": {"frames": cell.frames, "size": cell.size, "batch": cell.batch, "bn_batch": cell.bn_batch},
                "micro": fit.micro,
                "peak": fit.peak,
            }
            for cell, fit in fits.items()
        ]
        atomic_text(self._path, json.dumps({"devices": self._place, "fits": lines}, indent=1) + "\n")


class MicroBatchSearch:
    """Training steps that fit into memory: calls a `TrainStep` and sets how many clips it computes at a time."""

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
        """Take over what the run's record says.

        Args:
            train_step: Computes steps; from here on it is to be called through this alone.
            objective: Makes dummy batches to try with.
            state: What is trained.
            device: Where.
            ranks: Those that train together, all of which call this.
            resumed: Whether the run goes on, so that there may be a record of its own.
            on_message: Told what was found out, on every rank.
            on_shortage: Told at which step memory ran out, and what is done about it.
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
        """Try every batch shape of the steps from `start` on that is not known yet; nothing is learned by it.

        Args:
            start: The step.
            on_attempt: Told of each attempt before it.

        Raises:
            VcycleError: naming a shape that does not fit whatever is done.
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
        table = self._ranks.table([number for pair in found for number in pair])
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
        """Learn from this rank's clips of a batch, as `TrainStep` does; in smaller micro-batches once memory runs out.

        Raises:
            VcycleError: if no part is small enough, or the step cannot be done again.
        """
        while True:
            self._learning = False
            try:
                return self._train_step(step, batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            self._make_room(step, len(batch.labels))  # not above: an error that is handled holds the step's memory

    def _make_room(self, step: Step, own: int) -> None:
        """Have the shape of a step computed in smaller parts from now on."""
        self._state.optimizer.zero_grad()
        release(self._device)
        cell = BatchShape(frames=step.shape.frames, size=step.shape.size, batch=step.batch, bn_batch=step.bn_batch)
        at = f" at step {step.index:,}"
        if self._learning:
            raise VcycleError(
                f"memory ran out{at} ({cell}) while the optimizer changed the weights, so the step cannot be done "
                f"again: resume from the last checkpoint with --resume, where there is more memory{self._here()}"
            )
        now = min(self._train_step.micro.get((cell.batch, cell.shape), own), own)
        smaller = [size for size in self._sizes(cell) if size < now]
        if not smaller:
            raise self._too_large(cell, at)
        size = next((size for size in smaller if size <= now // 2), smaller[-1])
        self._fits[cell] = MicroBatchSize(micro=size)
        self._apply_size(cell)
        self._record.write(self._fits)  # by whichever rank it is: the first may be waiting for this one
        found = f"memory ran out{at}: from here on {_parted(cell, size)}"
        self._tell(found)
        self._tell_shortage(step, found)
        if self._ranks.world > 1:
            raise VcycleError(
                f"{found}. Rank {self._ranks.rank} cannot do the step again while others wait for it: resume from the "
                "last checkpoint with --resume"
            )

    def _try(self, step: Step, cell: BatchShape, on_attempt: Callable[[BatchShape], object]) -> tuple[int, int]:
        """How many clips this rank can compute at a time (the whole batch if all of its own, 0 if none); peak bytes."""
        if self._train_step.sharded:
            return self._try_together(step, cell, on_attempt)
        sizes = self._sizes(cell)
        peaks: dict[int, int] = {}

        def fits(size: int) -> bool:
            on_attempt(cell)
            self._train_step.micro[cell.batch, cell.shape] = size
            peak = self._peak(step, sizes[0])
            if peak is not None:
                peaks[size] = peak
            return peak is not None

        size = largest_that_fits(sizes, fits)
        del self._train_step.micro[cell.batch, cell.shape]
        if size is None:
            if self._is_shared(cell):  # the others wait within the step for this one
                raise self._too_large(cell)
            return 0, 0
        return cell.batch if size == sizes[0] else size, peaks[size]

    def _try_together(
        self, step: Step, cell: BatchShape, on_attempt: Callable[[BatchShape], object]
    ) -> tuple[int, int]:
        """As `_try`, with all ranks at once, as a sharded model is computed: what does not fit on one ends them all."""
        own = self._sizes(cell)[0]
        on_attempt(cell)
        peak = self._peak(step, own)
        if peak is None:
            self._learning = False  # nothing: what is tried is undone
            self._make_room(step, own)
        return cell.batch, peak or 0

    def _peak(self, step: Step, own: int) -> int | None:
        """The most bytes of a GPU in use during a step with so many clips (0 on a CPU); None if it does not fit."""
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
        """Have the optimizer take the memory that it holds from its first step on."""
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
        """The sizes that micro-batches of this rank's clips may have, largest first."""
        own = len(rank_slice(cell.batch, cell.bn_batch, self._ranks.rank, self._ranks.world))
        if not self._has_blocks():
            return micro_batch_sizes(own, 1)
        return [own] if self._is_shared(cell) else micro_batch_sizes(own, cell.bn_batch)

    def _is_shared(self, cell: BatchShape) -> bool:
        """Whether ranks share blocks of a batch, so that they compute it together."""
        world = self._ranks.world
        first = [rank_slice(cell.batch, cell.bn_batch, rank, world).start for rank in range(world)]
        return self._has_blocks() and any(place % cell.bn_batch for place in first)

    def _has_blocks(self) -> bool:
        """Whether clips of a batch meet: where they are normalised or mixed."""
        return self._objective.mixes or any(
            isinstance(layer, SubBatchNorm) and (layer.training or layer.running_mean is None)
            for layer in self._state.model.modules()
        )

    def _apply_size(self, cell: BatchShape) -> None:
        """Have the update do what is known of a shape."""
        if self._fits[cell].micro < cell.batch:
            self._train_step.micro[cell.batch, cell.shape] = self._fits[cell].micro

    def _note_learning(self, *_: Any) -> None:
        self._learning = True

    def _found(self, cells: Sequence[BatchShape]) -> str:
        """What trying some shapes has found out."""
        peak = max(self._fits[cell].peak or 0 for cell in cells)
        most = f", the most memory is {peak / 2**30:.1f} GiB of {self._memory / 2**30:.1f}" if peak else ""
        parted = [_parted(cell, self._fits[cell].micro) for cell in cells if self._fits[cell].micro < cell.batch]
        how = "; ".join(parted) if parted else "all fit"
        return f"batch shapes tried: {len(cells)}{most}; {how}"

    def _too_large(self, cell: BatchShape, at: str = "") -> VcycleError:
        least = self._sizes(cell)[-1]
        fewer = "a smaller training.bn_batch, " if self._has_blocks() and least > 1 else ""
        return VcycleError(
            f"{cell} does not fit into memory{at}{self._here()}, not even {least} of its clips at a time: "
            f"run.precision=bf16, {fewer}a smaller training.size or training.frames, or more ranks need less"
        )

    def _here(self) -> str:
        return f" ({self._memory / 2**30:.1f} GiB)"


def _parted(cell: BatchShape, clips: int) -> str:
    return f"{cell} is computed {clips} clips at a time, with the same result"


def attempted(first: Step, cell: BatchShape) -> Step:
    """A step at a batch shape that learns next to nothing, of every parameter."""
    roles = tuple((role, 1.0) for role, _ in first.role_factors)
    return replace(first, shape=cell.shape, batch=cell.batch, bn_batch=cell.bn_batch, lr=_LR, role_factors=roles)
