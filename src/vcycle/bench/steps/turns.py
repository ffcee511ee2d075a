"""Times a step at each batch shape in turns, so that other programs slow all shapes alike, and keeps the result."""

from __future__ import annotations

import json
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from vcycle.bench.steps.stepper import Run, Stepper
from vcycle.bench.steps.workload import Workload
from vcycle.errors import VcycleError
from vcycle.plan import BatchShape, Plan
from vcycle.runs.evaluate import write_result
from vcycle.train.environment import machine
from vcycle.train.memory import is_out_of_memory
from vcycle.train.threads import use_threads
from vcycle.utils.reading import read_text

__all__ = ["Clock", "Effort", "StepTimes", "Taken", "clock_of", "kept", "take_turns", "time_steps"]

_Found = TypeVar("_Found")

Clock = Literal["processor", "wall-clock"]


def clock_of(device: torch.device, *, threads: int, workers: int) -> Clock:
    """Processor time where one thread of the CPU does all, else wall-clock time.

    Several threads spin while they wait, workers are other processes, and a GPU has no processor time.
    """
    return "processor" if device.type == "cpu" and threads == 1 and not workers else "wall-clock"


_SAVED = ("clock", "device", "machine", "threads", "workers", "taken_seconds")
"""Fields of `StepTimes` that are saved as they are."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the measurement."""

    repeats: int = 5
    """Turns of each shape."""
    seconds: float = 1.0
    """Duration of each turn; at least one step."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The time of a step at each batch shape, loading included, and of whole plans by it.

    Where one thread does all, times are processor time, and the lowest of the turns counts: other programs only ever
    add to it. Elsewhere they are wall-clock time, and the median counts.
    """

    clock: Clock
    turns: Mapping[BatchShape, Sequence[float]]
    """Seconds per step, by turn; the same number of turns for each shape."""
    device: str = "CPU"
    machine: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The machine that measured them, as `vcycle.train.environment.machine` describes it."""
    threads: int = 1
    workers: int = 0
    taken_seconds: float = field(default=0.0, compare=False)
    """Wall-clock seconds of the measurement."""

    @property
    def where(self) -> dict[str, Any]:
        """The device and machine that measured them."""
        return {"device": self.device, **self.machine}

    @property
    def seconds(self) -> dict[BatchShape, float]:
        """Seconds per step."""
        typical = min if self.clock == "processor" else statistics.median
        return {shape: float(typical(turns)) for shape, turns in self.turns.items()}

    def of(self, plan: Plan, samples: int | None = None) -> float:
        """Seconds of training with a plan, until a number of samples or its end."""
        return _total(_counts(plan, samples), self.seconds)

    def of_each_turn(self, plan: Plan, samples: int | None = None) -> list[float]:
        """The same by the times of each turn alone."""
        counts = _counts(plan, samples)
        number = len(next(iter(self.turns.values())))
        return [_total(counts, {shape: self.turns[shape][turn] for shape in counts}) for turn in range(number)]

    def as_data(self) -> dict[str, Any]:
        """The times as plain data."""
        return {
            **{name: getattr(self, name) for name in _SAVED},
            "shapes": [{**asdict(shape), "seconds": list(each)} for shape, each in self.turns.items()],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> StepTimes:
        """The times of `as_data`."""
        turns = {
            BatchShape(**{name: value for name, value in row.items() if name != "seconds"}): row["seconds"]
            for row in data["shapes"]
        }
        return cls(turns=turns, **{name: data[name] for name in _SAVED})


def _counts(plan: Plan, samples: int | None) -> Mapping[BatchShape, int]:
    if samples is None:
        return plan.counts
    return plan.counts_before(bisect_left(range(len(plan) + 1), samples, hi=len(plan), key=plan.samples_before))


def _total(counts: Mapping[BatchShape, int], seconds: Mapping[BatchShape, float]) -> float:
    return sum(count * seconds[shape] for shape, count in counts.items())


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The turns of each batch shape."""

    in_memory: Mapping[BatchShape, Sequence[Run]]
    """Steps on a batch in memory; no turns if they were not wanted."""
    loaded: Mapping[BatchShape, Sequence[Run]]
    """Steps with loading; no turns without a dataset."""
    first: Mapping[BatchShape, tuple[float, float]]
    """Extra wall-clock and CPU seconds of the first step."""
    begin_seconds: float
    """Wall-clock seconds until the first batch was loaded."""


def take_turns(
    stepper: Stepper,
    plan: Plan,
    shapes: Iterable[BatchShape],
    *,
    effort: Effort,
    dataset: Any = None,
    in_memory: bool = True,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Taken:
    """Run steps of each batch shape in turns.

    Args:
        stepper: Runs the steps.
        plan: Any plan on the dataset.
        shapes: The batch shapes.
        effort: Size of the measurement.
        dataset: Dataset for `vcycle.loader`; if given, there are turns with loading.
        in_memory: Whether there are turns on a batch in memory.
        progress: Called with the number of completed turns and the total.

    Raises:
        VcycleError: if a shape does not fit into memory.
    """
    order = sorted(shapes, key=lambda shape: -shape.work)
    count = _Count(progress, len(order) * (1 + effort.repeats * (in_memory + (dataset is not None))))
    steps, first = {}, {}
    for shape in order:
        with _within_memory(shape):
            first[shape], steps[shape] = count(_warm_up(stepper, shape, effort.seconds))
    runs: dict[BatchShape, list[Run]] = {shape: [] for shape in order}
    loaded: dict[BatchShape, list[Run]] = {shape: [] for shape in order}
    stream = None
    if dataset is not None:
        from vcycle.bench.steps.loading import Stream  # needs a decoder, which steps on noise do not

        stream = Stream(dataset, plan, steps, effort.repeats, stepper.config, pin=stepper.device.type == "cuda")
    with stream or nullcontext():
        for _ in range(effort.repeats):
            for shape in order:
                with _within_memory(shape):
                    if in_memory:
                        runs[shape].append(count(stepper.run(shape, steps[shape])))
                    if stream is not None:
                        stepper.run(shape, stream.lead, stream.next)
                        loaded[shape].append(count(stepper.run(shape, steps[shape], stream.next)))
    begin = 0.0 if stream is None else stream.begin_seconds
    later = runs if in_memory else loaded
    extra = {shape: _extra(first[shape], later[shape]) for shape in order}
    return Taken(in_memory=runs, loaded=loaded, first=extra, begin_seconds=begin)


def time_steps(
    workload: Workload,
    plans: Sequence[Plan],
    dataset: Any,
    *,
    effort: Effort,
    micro: Mapping[BatchShape, int] | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> StepTimes:
    """Time a step, loading included, at each batch shape of some plans.

    Args:
        workload: The model and its training.
        plans: The plans.
        dataset: Dataset for `vcycle.loader`.
        effort: Size of the measurement.
        micro: Micro-batch sizes in clips, by batch shape, where a batch does not fit into memory.
        progress: Called with the name of the work, the number of completed turns and the total.
        on_message: Called with messages for the user before the measurement.

    Raises:
        VcycleError: if a shape does not fit into memory.
    """
    began, config = time.perf_counter(), workload.config
    threads = use_threads(config.run.threads, workers=config.loading.workers, on_message=on_message)
    stepper = Stepper(workload, plans[0], micro=micro or {})
    taken = take_turns(
        stepper,
        plans[0],
        dict.fromkeys(shape for plan in plans for shape in plan.shapes),
        effort=effort,
        dataset=dataset,
        in_memory=False,
        progress=lambda done, total: progress("timing steps", done, total),
    ).loaded
    clock = clock_of(stepper.device, threads=threads, workers=config.loading.workers)
    alone = clock == "processor"
    return StepTimes(
        clock=clock,
        turns={shape: [run.cpu if alone else run.seconds for run in runs] for shape, runs in taken.items()},
        device=torch.cuda.get_device_name(stepper.device) if stepper.device.type == "cuda" else "CPU",
        machine=machine(),
        threads=threads,
        workers=config.loading.workers,
        taken_seconds=time.perf_counter() - began,
    )


def kept(
    file: Path,
    key: str,
    measure: Callable[[], StepTimes],
    *,
    anywhere: bool = False,
    on_message: Callable[[str], None] = lambda _: None,
) -> StepTimes:
    """The times of steps in a file, or measured and written to it.

    Args:
        file: The file.
        key: Digest of all that the times depend on, but the machine; with another key they are measured.
        measure: Measures them.
        anywhere: Whether times of another machine are taken too.
        on_message: Called with a message if they are taken from the file.

    Raises:
        VcycleError: if the file cannot be written.
    """
    if file.is_file():
        try:
            found = json.loads(read_text(file))
            if found["key"] == key and (anywhere or found["machine"] == machine()):
                times = StepTimes.from_data(found)
                on_message(f"reusing the times of steps in {file}")
                return times
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            on_message(f"{file} cannot be read ({error}): steps are timed again")
    times = measure()
    write_result(file, {"key": key, **times.as_data()})
    return times


class _Count:
    """Counts completed turns and reports progress."""

    def __init__(self, tell: Callable[[int, int], None], total: int) -> None:
        self._tell, self._done, self._total = tell, 0, total

    def __call__(self, found: _Found) -> _Found:
        self._done += 1
        self._tell(self._done, self._total)
        return found


def _warm_up(stepper: Stepper, shape: BatchShape, seconds: float) -> tuple[Run, int]:
    """The first step at a shape, and the number of steps per turn."""
    stepper.make_ready(shape)
    first = stepper.run(shape, 1)
    return first, max(1, round(seconds / stepper.run(shape, 1).seconds)) if seconds else 1


def _extra(first: Run, later: Sequence[Run]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of the first step beyond those of a later one."""
    seconds = first.seconds - statistics.median(run.seconds for run in later)
    return max(0.0, seconds), max(0.0, first.cpu - statistics.median(run.cpu for run in later))


@contextmanager
def _within_memory(shape: BatchShape) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise VcycleError(
                f"out of memory at {shape}: a smaller training.batch makes every batch smaller"
            ) from error
        raise
