"""Times every batch shape of the given plans in turn, and predicts whole plans from these times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from vcycle.bench.steps.ceiling import peak_flops
from vcycle.bench.steps.stepper import Parts, Run, Stepper
from vcycle.bench.steps.turns import Clock, Effort, Taken, clock_of, take_turns
from vcycle.bench.steps.work import step_flops
from vcycle.bench.steps.workload import Workload
from vcycle.bench.timing import Spread, ratios
from vcycle.plan import BatchShape, Plan
from vcycle.train.accelerator import slowness
from vcycle.train.environment import machine, versions
from vcycle.train.threads import use_threads

__all__ = ["bench_steps"]

_EFFORT = Effort()

_LAUNCHES = 0.9
"""A step is launch-bound from this share of its time spent launching kernels."""
_DATA = 0.5
"""A step is data-bound from this share of its time spent waiting for its batch."""
_ARITHMETIC = 0.5
"""A step is compute-bound from this share of the peak FLOP rate."""


def bench_steps(
    workload: Workload,
    plans: Mapping[str, Plan],
    *,
    effort: Effort = _EFFORT,
    dataset: Any = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure each distinct batch shape of some plans, and predict how long the plans take.

    Shapes take turns, so that other load on the machine affects all alike; ratios are computed turn by turn.

    Args:
        workload: The model and its training.
        plans: Plans by name; must include the constant shape as ``constant``.
        effort: Size of the measurement.
        dataset: Dataset for `vcycle.loader`; if given, times include loading.
        progress: Called with the number of completed turns and the total.
        on_message: Called with messages for the user before the measurement.

    Returns:
        ``clock``: ``processor`` where one thread does all, because other programs hardly change its time, else
        ``wall-clock``; rates are by it. ``shapes``: for each, clips, frames, size, GFLOP, milliseconds (wall-clock and
        CPU, in memory and with loading; by part; waiting), memory, the FLOP rate relative to the baseline shape
        (realised speed-up over the FLOP ratio, in wall-clock and in CPU time of this process), and what bounds the
        step. ``plans``: for each, steps, predicted wall-clock and CPU seconds, speed-up over the constant shape by
        either, and speed-up by FLOPs alone.

    Raises:
        VcycleError: if a shape does not fit into memory.
    """
    constant = plans["constant"]
    base = constant.baseline_shape
    # Without a dataset, no loader worker needs a core.
    workers = 0 if dataset is None else workload.config.loading.workers
    threads = use_threads(workload.config.run.threads, workers=workers, on_message=on_message)
    stepper = Stepper(workload, constant)
    if (slow := slowness(stepper.precision, stepper.device)) is not None:
        on_message(slow)
    clock = clock_of(stepper.device, threads=threads, workers=workers)
    every = list(dict.fromkeys([base, *(shape for plan in plans.values() for shape in plan.shapes)]))
    alike: dict[BatchShape, BatchShape] = {}  # the first of those that differ in BatchNorm's groups alone
    for shape in every:
        alike.setdefault(_ungrouped(shape), shape)
    # Groups change no count, and counting a large network takes seconds.
    counted = {shape: step_flops(workload, shape) for shape in alike.values()}
    flops = {shape: counted[alike[_ungrouped(shape)]] for shape in every}
    stands = {shape: shape if stepper.has_batchnorm else alike[_ungrouped(shape)] for shape in every}
    shapes = list(dict.fromkeys(stands.values()))
    peak = peak_flops(stepper.device, stepper.precision, clock)
    found = take_turns(stepper, constant, shapes, effort=effort, dataset=dataset, progress=progress)
    runs, loaded, first = found.in_memory, found.loaded, found.first
    on_device = stepper.device.type == "cuda"
    parts = {shape: runs[shape][-1].parts or [stepper.parts(shape) for _ in range(2)][-1] for shape in shapes}
    taken = runs if dataset is None else loaded
    of_peak = {
        shape: flops[shape] / peak / statistics.median(_seconds(run, clock) for run in each)
        for shape, each in runs.items()
    }
    return {
        "device": torch.cuda.get_device_name(stepper.device) if on_device else "CPU",
        "precision": stepper.precision,
        "compiled": workload.config.run.compile,
        "threads": threads,
        "clock": clock,
        "workers": None if dataset is None else workload.config.loading.workers,
        "peak_gflops": peak / 1e9,
        "begin_seconds": found.begin_seconds,
        "machine": machine(),
        "versions": versions(),
        "shapes": [
            {
                "batch": shape.batch,
                "frames": shape.frames,
                "size": shape.size,
                "bn_batch": shape.bn_batch,
                "tokens": shape.tokens,
                "gflop": flops[shape] / 1e9,
                "step_ms": _milliseconds(run.seconds for run in runs[shape]),
                "cpu_ms": _milliseconds(run.cpu for run in runs[shape]),
                "parts_ms": _parts(parts[shape]),
                "launch_share": statistics.median(run.launch / run.seconds for run in runs[shape]),
                "loaded_ms": _milliseconds(run.seconds for run in loaded[shape]) if dataset is not None else None,
                "loaded_cpu_ms": _milliseconds(run.cpu for run in loaded[shape]) if dataset is not None else None,
                "wait_ms": _milliseconds(run.waited for run in loaded[shape]) if dataset is not None else None,
                "first_ms": 1e3 * first[shape][0],
                "memory_mib": _most(run.memory for run in runs[shape]),
                "clips_per_second": shape.batch / statistics.median(_seconds(run, clock) for run in taken[shape]),
                "realised": _rates(runs[shape], runs[base], flops[shape] / flops[base])._asdict(),
                "realised_cpu": _rates(runs[shape], runs[base], flops[shape] / flops[base], cpu=True)._asdict(),
                "of_peak": of_peak[shape],
                "bound_by": _bound(taken[shape], of_peak[shape], on_device=on_device),
            }
            for shape in shapes
        ],
        "plans": _plans(plans, stands, found, taken, flops),
    }


def _ungrouped(shape: BatchShape) -> BatchShape:
    return replace(shape, bn_batch=1)


def _seconds(run: Run, clock: Clock) -> float:
    return run.cpu if clock == "processor" else run.seconds


def _plans(
    plans: Mapping[str, Plan],
    stands: Mapping[BatchShape, BatchShape],
    found: Taken,
    taken: Mapping[BatchShape, Sequence[Run]],
    flops: Mapping[BatchShape, int],
) -> list[dict[str, Any]]:
    """Predict whole plans, turn by turn.

    Args:
        plans: Plans by name.
        stands: The measured shape whose step takes as long, for each of their shapes.
        found: What was measured.
        taken: The runs that count.
        flops: FLOPs of a step at each shape.
    """
    turns = range(len(next(iter(taken.values()))))
    begin, seconds, cpu = found.begin_seconds, {}, {}
    for name, plan in plans.items():
        counts = [(stands[shape], count) for shape, count in plan.counts.items()]
        once = [sum(found.first[shape][place] for shape in {shape for shape, _ in counts}) for place in range(2)]
        seconds[name] = [
            begin + once[0] + sum(count * taken[shape][turn].seconds for shape, count in counts) for turn in turns
        ]
        cpu[name] = [once[1] + sum(count * taken[shape][turn].cpu for shape, count in counts) for turn in turns]
    constant = plans["constant"]
    return [
        {
            "plan": name,
            "steps": len(plan),
            "samples": plan.samples,
            "seconds": Spread.of(seconds[name])._asdict(),
            "cpu_seconds": Spread.of(cpu[name])._asdict(),
            "speedup": ratios(seconds["constant"], seconds[name])._asdict(),
            "cpu_speedup": ratios(cpu["constant"], cpu[name])._asdict(),
            "flop_speedup": _work(constant, flops) / _work(plan, flops),
        }
        for name, plan in plans.items()
    ]


def _work(plan: Plan, flops: Mapping[BatchShape, int]) -> int:
    return sum(count * flops[shape] for shape, count in plan.counts.items())


def _milliseconds(seconds: Iterable[float]) -> dict[str, float]:
    return Spread.of([1e3 * each for each in seconds])._asdict()


def _parts(parts: Parts | None) -> dict[str, float] | None:
    return None if parts is None else {name: 1e3 * value for name, value in parts._asdict().items()}


def _rates(runs: Sequence[Run], base: Sequence[Run], work: float, *, cpu: bool = False) -> Spread:
    """The FLOP rate relative to the baseline's shape.

    Args:
        runs: Runs of a shape.
        base: Runs of the baseline's shape.
        work: The shape's FLOPs over the baseline's.
        cpu: Use CPU time rather than wall-clock time.
    """
    slow, fast = ([run.cpu if cpu else run.seconds for run in each] for each in (base, runs))
    return ratios([work * seconds for seconds in slow], fast)


def _most(found: Iterable[int | None]) -> int | None:
    """The maximum, in MiB; None if unknown."""
    known = [each >> 20 for each in found if each is not None]
    return max(known) if known else None


def _bound(runs: Sequence[Run], of_peak: float, *, on_device: bool) -> str:
    """The bottleneck of a step.

    Args:
        runs: Runs of a shape.
        of_peak: Its FLOP rate in memory, relative to the peak.
        on_device: Whether the host launches the step on a device.
    """
    if statistics.median(run.waited / run.seconds for run in runs) >= _DATA:
        return "data"
    if on_device and statistics.median(run.launch / run.seconds for run in runs) >= _LAUNCHES:
        return "launches"
    return "arithmetic" if of_peak >= _ARITHMETIC else "memory, overhead"
