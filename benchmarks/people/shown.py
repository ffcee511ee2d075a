"""What the pages show of the studies that leave people out."""

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

import numpy as np
from benchmarks.logs import lines, mean, over, percent, table, times
from benchmarks.recognition.folds import clusters_of, paired, table_of

from vcycle.bench.statistics import Interval, paired_bootstrap

__all__ = ["accuracy", "difference", "speedup", "tables"]

SETS = {"depth": "people/mhad_depth.jsonl", "lips": "people/lips_phrases.jsonl"}
SHORT, LONG = "cascade@1", "cascade@1.5"
NAMES = {
    "constant@0.5": "constant shape, ½",
    "constant@1": "constant shape, 1",
    "constant@2": "constant shape, 2",
    "control:cascade@0.5": "its control, ½",
    "control:cascade@1": "its control, 1",
    "control:cascade@2": "its control, 2",
    SHORT: "**cascade, 1**",
    LONG: "**cascade, 1.5**",
    "cascade@2.5": "cascade, 2.5",
}
Runs = Sequence[Mapping[str, Any]]


@cache
def runs(name: str) -> list[dict[str, Any]]:
    """All trainings of a set."""
    return lines(SETS[name])


def plans(name: str) -> list[str]:
    """The plans that were trained on a set, coarse ones last."""
    return [plan for plan in NAMES if any(run["plan"] == plan for run in runs(name))]


def accuracy(name: str, plan: str) -> str:
    """The share of all videos that a plan's trainings recognise, and its deviation over seeds."""
    answers = table_of(_of(name, plan))
    return percent([float(share) for share in np.nanmean(answers, axis=1)]) if len(answers) > 1 else _mean(answers)


def _mean(answers: np.ndarray) -> str:
    return percent(float(np.nanmean(answers)))


@cache
def interval(name: str, plan: str, other: str) -> Interval:
    """The difference, with its interval over seeds and people."""
    a, b = paired(runs(name), plan, other)
    found = paired_bootstrap(table_of(a), table_of(b), clusters=clusters_of(a))
    assert found is not None
    return found


def difference(name: str, plan: str, other: str) -> str:
    """Points by which a plan is better, with the interval: `+3.0 (+0.8 to +5.6)`."""
    return over(interval(name, plan, other)._asdict())


def speedup(name: str, plan: str, other: str, digits: int = 1) -> str:
    """The median over pairs of fold and seed."""
    return times(1 / median(_ratios(name, plan, other)), digits)


@cache
def _ratios(name: str, plan: str, other: str) -> list[float]:
    pairs = zip(*paired(runs(name), plan, other), strict=True)
    return sorted(x["cpu_seconds"] / y["cpu_seconds"] for x, y in pairs)


def _of(name: str, plan: str) -> list[dict[str, Any]]:
    return [run for run in runs(name) if run["plan"] == plan]


def _plans(name: str) -> str:
    rows = []
    for plan in plans(name):
        own = _of(name, plan)
        seconds = median(run["cpu_seconds"] for run in own)
        rows.append(
            [NAMES[plan], str(len(own)), f"{mean(own, 'steps'):,.0f}", f"{seconds:.0f} s", accuracy(name, plan)]
        )
    return table(["plan and length", "trainings", "steps", "processor time", "accuracy, all people"], rows)


def _against(name: str) -> str:
    rows = []
    for plan in (SHORT, LONG):
        for other in (each for each in plans(name) if not each.startswith("cascade") and not each.endswith("@2")):
            ratios = _ratios(name, plan, other)
            taken = f"{times(1 / median(ratios), 2)} ({times(1 / ratios[-1], 2)} to {times(1 / ratios[0], 2)})"
            rows.append([NAMES[plan], NAMES[other], difference(name, plan, other), taken])
    return table(["plan", "against", "points (95 % CI)", "speed-up, processor time (lowest to highest)"], rows, left=2)


@cache
def tables() -> dict[str, str]:
    """Of both sets."""
    return {
        **{name: _plans(name) for name in SETS},
        **{f"{name}, differences": _against(name) for name in SETS},
    }
