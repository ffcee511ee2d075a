"""Every batch shape of some plans measured in turn, and whole plans put together from them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vcycle.bench.machine import machine, versions
from vcycle.bench.steps.ceiling import peak_flops
from vcycle.bench.steps.stepper import Run, Stepper, model_of
from vcycle.bench.steps.work import step_flops
from vcycle.bench.timing import Spread, ratios
from vcycle.errors import VcycleError
from vcycle.plan import BatchShape, Plan
from vcycle.recipes.schema import Recipe

__all__ = ["Effort", "bench_steps"]

_LAUNCHES = 0.9
"""Share of a step that the host needs to hand it over, from which on the device waits for the host."""
_ARITHMETIC = 0.5
"""Share of the fastest arithmetic from which on a step is bound by it."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured."""

    repeats: int = 5
    """Turns of each shape."""
    seconds: float = 1.0
    """Of each turn, at least one step long."""


def bench_steps(
    recipe: Recipe,
    plans: Mapping[str, Plan],
    *,
    classes: int,
    effort: Effort = Effort(),
    data_seconds: Callable[[BatchShape], float] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Measure each distinct batch shape of some plans, and predict how long the plans take.

    Shapes take turns, so that what else the machine does falls on all alike; ratios are taken turn by turn.

    Args:
        recipe: What is trained.
        plans: By name; the constant shape must be among them, as ``constant``.
        classes: Outputs of the model.
        effort: How much is measured.
        data_seconds: Seconds that the loader takes for a batch, where it is to be counted.
        progress: Told how many turns are done, of how many.

    Returns:
        ``shapes``: for each, clips, frames, size, GFLOP, milliseconds (whole, by part, launch, data), memory, the share
        of the baseline's rate of arithmetic that it reaches (realised speed-up over that of the FLOPs), and what
        bounds it. ``plans``: for each, steps, predicted hours, speed-up over the constant shape, and FLOPs' own.

    Raises:
        VcycleError: if a shape does not fit into memory.
    """
    constant = plans["constant"]
    base = constant.baseline_shape
    shapes = list(dict.fromkeys([base, *(shape for plan in plans.values() for shape in plan.shapes)]))
    stepper = Stepper(recipe, constant, classes)
    flops = {shape: step_flops(lambda: model_of(recipe, classes), shape) for shape in shapes}
    peak = peak_flops(stepper.device, stepper.precision)
    done, total = 0, len(shapes) * (1 + effort.repeats)
    steps = {}
    for shape in sorted(shapes, key=lambda shape: -shape.voxels):
        steps[shape] = _steps(stepper, shape, effort.seconds)
        done += 1
        progress(done, total)
    runs: dict[BatchShape, list[Run]] = {shape: [] for shape in shapes}
    for _ in range(effort.repeats):
        for shape in shapes:
            runs[shape].append(stepper.run(shape, steps[shape]))
            done += 1
            progress(done, total)
    parts = {shape: [stepper.parts(shape) for _ in range(2)][-1] for shape in shapes}
    waits = {shape: 0.0 if data_seconds is None else data_seconds(shape) for shape in shapes}
    took = {shape: [max(run.seconds, waits[shape]) for run in runs[shape]] for shape in shapes}
    rows = []
    for shape in shapes:
        rate = [flops[shape] / run.seconds for run in runs[shape]]
        of_base = ratios(rate, [flops[base] / run.seconds for run in runs[base]])
        launch = statistics.median(run.launch / run.seconds for run in runs[shape])
        share = statistics.median(rate) / peak
        rows.append(
            {
                "batch": shape.batch,
                "frames": shape.frames,
                "size": shape.size,
                "bn_batch": shape.bn_batch,
                "gflop": flops[shape] / 1e9,
                "step_ms": _milliseconds([run.seconds for run in runs[shape]]),
                "parts_ms": {name: 1e3 * value for name, value in parts[shape]._asdict().items()},
                "launch_share": launch,
                "data_ms": 1e3 * waits[shape] if data_seconds is not None else None,
                "memory_mib": None if runs[shape][0].memory is None else (runs[shape][0].memory or 0) >> 20,
                "clips_per_second": shape.batch / statistics.median(took[shape]),
                "realised": of_base._asdict(),
                "of_peak": share,
                "bound_by": _bound(stepper.device, launch, share, waits[shape], statistics.median(took[shape])),
            }
        )
    totals = {
        name: [sum(count * took[shape][turn] for shape, count in plan.counts.items()) for turn in range(effort.repeats)]
        for name, plan in plans.items()
    }
    return {
        "device": _device(stepper.device),
        "precision": stepper.precision,
        "threads": torch.get_num_threads(),
        "peak_gflops": peak / 1e9,
        "machine": machine(),
        "versions": versions(),
        "shapes": rows,
        "plans": [
            {
                "plan": name,
                "steps": len(plan),
                "samples": plan.samples,
                "seconds": Spread.of(totals[name])._asdict(),
                "speedup": ratios(totals["constant"], totals[name])._asdict(),
                "flop_speedup": constant.work(flops.__getitem__) / plan.work(flops.__getitem__),
            }
            for name, plan in plans.items()
        ],
    }


def _steps(stepper: Stepper, shape: BatchShape, seconds: float) -> int:
    """How many steps make a turn; some are taken, so that nothing is new to the device afterwards."""
    try:
        stepper.run(shape, 1)
        began = time.perf_counter()
        stepper.run(shape, 1)
        return max(1, round(seconds / (time.perf_counter() - began)))
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _too_large(shape) from error
    except RuntimeError as error:
        if "not enough memory" in str(error) or "can't allocate memory" in str(error):  # on a CPU
            raise _too_large(shape) from error
        raise


def _too_large(shape: BatchShape) -> VcycleError:
    return VcycleError(f"{shape} does not fit into memory here: training.batch=N makes every batch smaller")


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return Spread.of([1e3 * each for each in seconds])._asdict()


def _bound(device: torch.device, launch: float, share: float, wait: float, took: float) -> str:
    """What a step would have to be given more of."""
    if wait >= took:
        return "data"
    if device.type == "cuda" and launch >= _LAUNCHES:
        return "launches"
    return "arithmetic" if share >= _ARITHMETIC else "memory and overhead"


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
