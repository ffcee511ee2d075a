"""The hierarchical plan against the constant shape and its control, over the seeds of both studies.

python -m benchmarks.superresolution.pooled

PSNR is the mean of the test clips; intervals are Student's, of 95 %, over the differences within a seed. Times are
those of the last study alone.
"""

from collections.abc import Mapping
from functools import cache
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.logs import lines

from vcycle.bench.statistics import Interval, clip_interval

__all__ = ["CONSTANT", "CONTROL", "PLAN", "gain", "ratios", "values"]

PLAN, CONSTANT, CONTROL = "hierarchical", "constant", "control:hierarchical"


@cache
def _studies() -> list[dict[tuple[str, int], Mapping[str, Any]]]:
    files = ("superresolution/results.jsonl", "superresolution/again.jsonl")
    return [{(run["arm"], run["seed"]): run for run in lines(file)} for file in files]


def values(arm: str) -> list[float]:
    """The PSNR of every seed of an arm."""
    return [run["test"] for study in _studies() for (name, _), run in study.items() if name == arm]


def _pairs(other: str) -> list[list[tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """By study, the trainings of the plan and of another arm with the same seed."""
    return [[(study[PLAN, seed], study[other, seed]) for name, seed in study if name == PLAN] for study in _studies()]


def gain(other: str) -> Interval:
    """The difference in PSNR, with its interval over seeds."""
    pairs = [pair for study in _pairs(other) for pair in study]
    found = clip_interval([[own["test"] for own, _ in pairs]], [[theirs["test"] for _, theirs in pairs]], shares=False)
    assert found is not None
    return found


def ratios(other: str) -> list[float]:
    """How many times faster each training of the last study is, in order."""
    return sorted(theirs["cpu_seconds"] / own["cpu_seconds"] for own, theirs in _pairs(other)[-1])


if __name__ == "__main__":
    for arm in (CONSTANT, CONTROL, PLAN):
        found = values(arm)
        print(f"{arm}: {fmean(found):.3f} dB ± {stdev(found):.3f}, {len(found)} seeds")
    for other in (CONSTANT, CONTROL):
        better, times = gain(other), ratios(other)
        print(
            f"against {other}: {better.difference:+.3f} dB ({better.low:+.3f} to {better.high:+.3f}), "
            f"{median(times):.2f}× faster in processor time ({times[0]:.2f}× to {times[-1]:.2f}×)"
        )
