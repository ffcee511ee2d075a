"""What the pages show of the studies that leave people out."""

from functools import cache
from statistics import median
from typing import Any

import numpy as np
from benchmarks.logs import lines, mean, over, percent, table, times
from benchmarks.recognition.folds import difference_of, ratios_of, table_of, voxels_of

from vcycle.bench.statistics import Interval

__all__ = ["accuracy", "difference", "sentences", "speedup", "tables"]

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


@cache
def runs(name: str) -> list[dict[str, Any]]:
    """All trainings of a set."""
    return lines(SETS[name])


def plans(name: str) -> list[str]:
    """The plans that were trained on a set, coarse ones last."""
    return [plan for plan in NAMES if any(run["plan"] == plan for run in runs(name))]


def accuracy(name: str, plan: str) -> str:
    """The share of all videos that a plan's trainings recognise, and its deviation over seeds."""
    shares = [float(share) for share in np.nanmean(table_of(_of(name, plan)), axis=1)]
    return percent(shares if len(shares) > 1 else shares[0])


@cache
def interval(name: str, plan: str, other: str) -> Interval:
    """The difference, with its interval over seeds and people."""
    found = difference_of(runs(name), plan, other)
    assert found is not None
    return found


def difference(name: str, plan: str, other: str) -> str:
    """Points by which a plan is better, with the interval: `+3.0 (+0.8 to +5.6)`."""
    return over(interval(name, plan, other)._asdict())


def speedup(name: str, plan: str, other: str, digits: int = 1) -> str:
    """The median over pairs of fold and seed."""
    return times(1 / median(_ratios(name, plan, other)), digits)


def _ratios(name: str, plan: str, other: str) -> list[float]:
    return ratios_of(runs(name), plan, other)


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


def _both(name: str, plan: str, other: str) -> str:
    """A speed-up with the difference: `3.0× faster, −0.2 points (95 % CI −3.1 to +2.7)`."""
    points, _, rest = difference(name, plan, other).partition(" (")
    return f"{speedup(name, plan, other)} faster, {points} points (95 % CI {rest}"


def _row(name: str, plan: str) -> str:
    """The cells of a plan: accuracy, and both references of one length."""
    references = ("constant@1", "control:cascade@1")
    against = [f"{speedup(name, plan, other)}, {difference(name, plan, other)}" for other in references]
    return " | ".join([accuracy(name, plan).split(" ±")[0], *against])


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    constant, control, half = "constant@1", "control:cascade@1", "control:cascade@0.5"
    depth, lips = "depth", "lips"
    work = {plan: times(_work(depth, plan)) for plan in (SHORT, LONG)}
    rows = [
        f"| [27 actions, 8 people](../benchmarks/people/README.md), cascade of 1.5 lengths | {work[LONG]} less "
        f"| {speedup(depth, LONG, constant)} | {speedup(depth, LONG, control)} | {difference(depth, LONG, constant)} "
        f"| {difference(depth, LONG, control)} |",
        f"| the same, cascade of one length | {work[SHORT]} less | {speedup(depth, SHORT, constant)} "
        f"| {speedup(depth, SHORT, control)} | {difference(depth, SHORT, constant)} "
        f"| {difference(depth, SHORT, control)} |",
        f"| 10 phrases, 15 people, cascade of one length | {work[SHORT]} less | {speedup(lips, SHORT, constant)} "
        f"| {speedup(lips, SHORT, control)} | {difference(lips, SHORT, constant)} "
        f"| {difference(lips, SHORT, control)} |",
        f"| the same, cascade of 1.5 lengths | {work[LONG]} less | {speedup(lips, LONG, constant)} "
        f"| {speedup(lips, LONG, control)} | {difference(lips, LONG, constant)} | {difference(lips, LONG, control)} |",
    ]
    return {
        "README.md": [
            f"| [phrases](benchmarks/people/README.md) | `cascade` | {_row(lips, SHORT)} |",
            f"| | `cascade@1.5` | {_row(lips, LONG)} |",
            f"| [actions](benchmarks/people/README.md) | `cascade@1.5` | {_row(depth, LONG)} |",
            f"the cascade is {_points(lips, LONG, half)} points better than the constant shape under the same LR "
            f"curve on the phrases, and {_points(depth, LONG, half)} on the actions",
        ],
        "docs/expect.md": rows,
        "benchmarks/people/README.md": [
            f"Against the control, on the phrases: {_both(lips, SHORT, control)}; with 1.5 lengths "
            f"{_both(lips, LONG, control)}.",
            f"On the actions: {_both(depth, LONG, control)} with 1.5 lengths; with one, "
            f"{_both(depth, SHORT, control)}.",
            f"Against the constant shape, on the phrases: {_both(lips, SHORT, constant)}. On the actions: "
            f"{_both(depth, SHORT, constant)}.",
            f"In about the time of half a control the cascade of 1.5 lengths is {difference(lips, LONG, half)} points "
            f"better on the phrases and {difference(depth, LONG, half)} on the actions",
            f"work says {work[SHORT]} and {work[LONG]}",
            f"takes {_coarse(depth):.2f} of its time on the actions and {_coarse(lips):.2f} on the phrases",
        ],
    }


def _coarse(name: str) -> float:
    """The median time of a step at the coarsest shape, as a share of that of a full step."""
    coarse, full = (
        median(float(next(iter(run["step_seconds"].values()))[1]) for run in _of(name, plan))
        for plan in (SHORT, "control:cascade@1")
    )
    return coarse / full


def _points(name: str, plan: str, other: str) -> str:
    return f"{100 * interval(name, plan, other).difference:.0f}"


def _work(name: str, plan: str) -> float:
    """How many times fewer voxels a plan has than the constant shape of one length."""
    return voxels_of(_of(name, "constant@1")[0]) / voxels_of(_of(name, plan)[0])
