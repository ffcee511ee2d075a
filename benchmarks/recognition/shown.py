"""What the pages show of the logs of both studies on real videos."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from benchmarks.logs import lines, load, mean, over, percent, table, times
from benchmarks.recognition.folds import difference_of, ratios_of, table_of, voxels_of

from vcycle.bench.statistics import paired_bootstrap

__all__ = ["Folds", "difference", "sentences", "speedup", "tables", "work"]

CONSTANT, CONTROL = "constant@2", "control:cascade@2"
Runs = Sequence[Mapping[str, Any]]


class Folds:
    """Trainings of a cross-validation, and those of them whose times are shown."""

    def __init__(self, files: Sequence[str], timed: Sequence[str] = ()) -> None:
        self.runs = lines(*(f"recognition/{file}.jsonl" for file in files))
        self.timed = lines(*(f"recognition/{file}.jsonl" for file in timed)) or self.runs


@cache
def studies() -> dict[str, Folds]:
    """The second study, by set, and its two halves."""
    first, last = ("folds-gestures", "folds-gestures-usual"), ("folds-gestures-again", "folds-gestures-usual-again")
    return {
        "gestures": Folds([first[0], last[0], first[1], last[1]], last),
        "first": Folds(first),
        "last": Folds(last),
        "fights": Folds(["folds-fights-space"]),
        "fights before": Folds(["folds-fights"]),
    }


@cache
def difference(name: str, plan: str, other: str) -> str:
    """Points by which a plan is better, with the interval: `+3.0 (+0.8 to +5.6)`."""
    found = difference_of(studies()[name].runs, plan, other)
    assert found is not None
    return over(found._asdict())


@cache
def speedup(name: str, plan: str, other: str, digits: int = 1) -> str:
    """The median over pairs of fold and seed."""
    return times(1 / median(_ratios(name, plan, other)), digits)


def _ratios(name: str, plan: str, other: str) -> list[float]:
    return ratios_of(studies()[name].timed, plan, other)


def accuracy(name: str, plan: str, digits: int = 1) -> str:
    """The share of the videos that a plan's trainings recognise."""
    own = [run for run in studies()[name].runs if run["plan"] == plan]
    return percent(float(np.nanmean(table_of(own))), digits)


def work(name: str, plan: str, other: str) -> str:
    """How many times fewer voxels a plan has."""
    full, own = (fmean(map(voxels_of, _of(name, each))) for each in (other, plan))
    return times(full / own)


def _of(name: str, plan: str) -> list[dict[str, Any]]:
    return [run for run in studies()[name].runs if run["plan"] == plan]


def _plans(*rows: tuple[str, str, str]) -> str:
    """A row per plan: the study, the plan, and its name on the page."""
    cells = []
    for name, plan, shown in rows:
        own = _of(name, plan)
        timed = [run for run in studies()[name].timed if run["plan"] == plan]
        cells.append(
            [
                *(shown, str(len(own)), f"{mean(own, 'steps'):,.0f}", f"{mean(timed, 'cpu_seconds'):.1f} s"),
                *(f"{mean(own, 'nll'):.3f}", accuracy(name, plan)),
            ]
        )
        cells[-1][-1] += f" ± {100 * stdev(fmean(run['right']) for run in own):.1f}"
    return table(["plan", "trainings", "steps", "processor time", "loss on test", "accuracy on test"], cells)


def _against(*rows: tuple[str, str, str, str, str]) -> str:
    """A row per plan and reference: the study, the two, and their names on the page."""
    cells = []
    for name, plan, other, shown, against in rows:
        low, *_, high = (times(1 / ratio, 2) for ratio in reversed(_ratios(name, plan, other)))
        both = speedup(name, plan, other, 2)
        cells.append([shown, against, difference(name, plan, other), f"{both} ({low} to {high})"])
    return table(["plan", "against", "difference in points (95 %)", "speed-up (processor time)"], cells, left=2)


@cache
def tables() -> dict[str, str]:
    """Of both studies."""
    gestures = {
        "cascade@1.7": "**cascade, 1.7**",
        "cascade@1.4": "**cascade, 1.4**",
        "cascade@2": "cascade with the usual batches and equal steps, 2 ¹",
    }
    references = {CONSTANT: "constant shape, 2", CONTROL: "its control, 2"}
    space, before = "**cascade in space, 1.15**", "gestures' cascade, 0.9"
    return {
        "gestures in folds": _plans(*(("gestures", plan, shown) for plan, shown in (references | gestures).items())),
        "gestures in folds, differences": _against(
            *(
                ("gestures", plan, other, shown, against)
                for plan, shown in gestures.items()
                for other, against in references.items()
            )
        ),
        "fights in folds": _plans(
            *(("fights", plan, shown) for plan, shown in (references | {"cascade@1.15": space}).items()),
            ("fights before", "cascade@0.9", before),
            ("fights before", "control:cascade@1", "its control, 1"),
            ("fights before", "constant@1", "constant shape, 1"),
        ),
        "fights in folds, differences": _against(
            *(("fights", "cascade@1.15", other, space, against) for other, against in references.items()),
            ("fights before", "cascade@0.9", "constant@1", before, "constant shape, 1"),
            ("fights before", "cascade@0.9", "control:cascade@1", before, "its control, 1"),
        ),
        "gestures": _lengths("gestures", GESTURES),
        "fights": _lengths("fights", FIGHTS),
        "gestures, differences": _split_differences(),
    }


GESTURES = {
    "constant@0.25": "constant shape ‡",
    "constant@0.5": "constant shape ‡",
    "constant": "constant shape",
    "constant@2": "**constant shape †**",
    "control:cascade@0.25": "its control ‡",
    "control:cascade@0.5": "its control ‡",
    "control:cascade": "**its control**",
    "long": "long cycle ‡",
    "short": "short cycle ‡",
    "long+short": "long+short cycles",
    "cascade@0.5": "cascade",
    "cascade": "**cascade**",
    "cascade@1.5": "cascade †",
}
FIGHTS = {
    "constant@0.25": "constant shape §",
    "constant@0.5": "constant shape",
    "constant": "**constant shape**",
    "control:cascade@0.25": "its control §",
    "control:cascade@0.5": "**its control**",
    "control:cascade": "its control",
    "long": "long cycle §",
    "short": "short cycle §",
    "long+short": "long+short cycles",
    "cascade@0.5": "cascade",
    "cascade": "**cascade**",
}
"""The arms of the first study, and their names on the page."""


@cache
def _split(name: str) -> dict[str, list[Mapping[str, Any]]]:
    """The trainings of the first study, by arm."""
    runs = lines(f"recognition/{name}.jsonl")
    return {arm: [run for run in runs if run["arm"] == arm] for arm in dict.fromkeys(run["arm"] for run in runs)}


def _lengths(name: str, arms: Mapping[str, str]) -> str:
    rows = []
    for arm, shown in arms.items():
        own = _split(name)[arm]
        length = arm.partition("@")[2] or ("1.5" if arm in ("long", "short", "long+short") else "1")
        seconds = (f"{mean(own, key):.1f} s" for key in ("cpu_seconds", "seconds"))
        accuracies = percent(mean(own, "val")), percent([run["test"] for run in own])
        rows.append([shown, length, str(len(own)), *seconds, f"{mean(own, 'steps'):,.0f}", *accuracies])
    return table(["plan", "length", "seeds", "processor time", "wall clock", "steps", "validation", "test"], rows)


@cache
def _split_difference(name: str, plan: str, other: str) -> str:
    """Points by which a plan of the first study is better, with the interval."""
    a, b = (sorted(_split(name)[arm], key=lambda run: int(run["seed"])) for arm in (plan, other))
    found = paired_bootstrap([run["each"] for run in a], [run["each"] for run in b])
    assert found is not None
    return over(found._asdict())


def _split_times(name: str, plan: str, other: str) -> str:
    return times(mean(_split(name)[other], "cpu_seconds") / mean(_split(name)[plan], "cpu_seconds"))


def _split_differences() -> str:
    plans = {"cascade@0.5": "cascade, 0.5", "cascade": "cascade, 1", "cascade@1.5": "cascade, 1.5 †"}
    others = {"constant": "constant shape, 1", "constant@2": "constant shape, 2 †", "control:cascade": "its control, 1"}
    rows = [
        [
            shown,
            *(
                f"{_split_difference('gestures', plan, other)}, {_split_times('gestures', plan, other)}"
                for other in others
            ),
        ]
        for plan, shown in plans.items()
    ]
    return table(["", *others.values()], rows)


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    g, f = "gestures", "fights"
    long, short, space = "cascade@1.7", "cascade@1.4", "cascade@1.15"
    fast = {plan: (speedup(g, plan, CONSTANT), speedup(g, plan, CONTROL)) for plan in (long, short)}
    gain = {plan: (difference(g, plan, CONSTANT), difference(g, plan, CONTROL)) for plan in (long, short)}
    fight = [show(f, space, other) for other in (CONSTANT, CONTROL) for show in (speedup, difference)]
    split = {(name, other): _split_difference(name, "cascade", other) for name, other in SPLIT}
    ratio = {(name, other): _split_times(name, "cascade", other) for name, other in SPLIT}
    longer = _split_difference(g, "cascade@1.5", "constant@2")
    halves = {
        (half, plan): (difference(half, plan, CONSTANT), difference(half, plan, CONTROL))
        for half in ("first", "last")
        for plan in (long, short)
    }
    updates = (f"{mean(_split(g)[arm], 'steps'):,.0f}" for arm in ("long+short", "constant"))
    undisturbed = 2 * mean(_split(g)["constant"], "cpu_seconds")
    least = times(undisturbed / mean(_split(g)["cascade@1.5"], "cpu_seconds"))
    reached = load("recognition/gestures.json")["arms"]
    return {
        "README.md": [
            f"On real gestures the same kind of plan is [{fast[long][0]} faster](#results-in-detail).",
            f"| [gestures](benchmarks/recognition/README.md) | `cascade` | {accuracy(g, long)} "
            f"| {fast[long][0]}, {gain[long][0]} | {fast[long][1]}, {gain[long][1]} |",
            f"| | `cascade`, shorter | {accuracy(g, short)} | {fast[short][0]}, {gain[short][0]} "
            f"| {fast[short][1]}, {gain[short][1]} |",
            f"best constant shape ({accuracy(g, CONSTANT)}) and its control ({accuracy(g, CONTROL)})",
            f"all end at {_lowest_and_highest()}.",
        ],
        "benchmarks/demo/README.md": [f"On real gestures the cascade is {fast[long][0]} faster than both"],
        "docs/expect.md": [
            f"cascade with `batch_growth`, all videos in folds | {work(g, long, CONSTANT)} less | {fast[long][0]} "
            f"| {fast[long][1]} | {gain[long][0]} | {gain[long][1]} |",
            f"| gestures, the same, shorter | {work(g, short, CONSTANT)} less | {fast[short][0]} | {fast[short][1]} "
            f"| {gain[short][0]} | {gain[short][1]} |",
            f"| fights, cascade in space, all videos in folds | {work(f, space, CONSTANT)} less | {fight[0]} "
            f"| {fight[2]} | {fight[1]} | {fight[3]} |",
            f"| gestures, one test split, cascade | {_split_work(g, 'cascade', 'constant', 2)} less "
            f"| {ratio[g, 'constant']} | {ratio[g, 'control:cascade']} | {split[g, 'constant']} "
            f"| {split[g, 'control:cascade']} |",
            "| gestures, cascade of 1.5 lengths against the best constant shape "
            f"| {_split_work(g, 'cascade@1.5', 'constant@2', 0)} less | {least} or more | not measured | {longer} |",
            f"| fights, one test split, cascade | {_split_work(f, 'cascade', 'constant', 2)} less "
            f"| {ratio[f, 'constant']} | {ratio[f, 'control:cascade@0.5']} | {split[f, 'constant']} "
            f"| {split[f, 'control:cascade@0.5']} |",
            f"on the former demo, {next(updates)} of {next(updates)} on gestures",
            f"on gestures against the control (margin {_margin(gain[long][1])} point, {_margin(gain[short][1])} for",
            f"it stayed at chance for {_learning('constant')} of processor time, the cascade for "
            f"{_learning('cascade')}",
        ],
        "benchmarks/recognition/README.md": [
            f"over ten seeds: {fast[long][0]} faster than the constant shape at "
            f"{_points(gain[long][0], '95 % interval ')}, and {fast[long][1]} faster than its control at "
            f"{gain[long][1]}.",
            f"{fast[short][0]} faster than both, at {gain[short][0]} and {gain[short][1]}.",
            f"where little is learned: {fight[0]} at {fight[1]} and {fight[3]}.",
            f"{halves['first', long][0]} against the constant shape and {halves['first', long][1]} against the control "
            f"for 1.7 lengths; {halves['first', short][0]} and {halves['first', short][1]} for 1.4.",
            f"**The last five alone**: {halves['last', long][0]} and {halves['last', long][1]}; "
            f"{halves['last', short][0]} and {halves['last', short][1]}.",
            f"all plans end at {_lowest_and_highest()}",
            f"the cascade is {ratio[g, 'constant']} faster than the constant shape and than its control, and reached "
            f"{percent(mean(_split(g)['cascade'], 'test'))}: {_points(split[g, 'constant'], 'against')}, "
            f"{split[g, 'control:cascade'].replace(' ', ' against its control ', 1)}.",
            f"it is twice as long, at {percent(mean(_split(g)['constant@2'], 'test'))}. The cascade is "
            f"{_below(split[g, 'constant@2'], ' points below it ')} and {ratio[g, 'constant@2']} faster. A cascade of "
            f"one and a half lengths, at {percent(mean(_split(g)['cascade@1.5'], 'test'))}, is "
            f"{_below(longer, ' below ')} and {_split_times(g, 'cascade@1.5', 'constant@2')} faster as measured, at "
            f"least {least}.",
            f"`fights`: the cascade is {_below(split[f, 'constant'], ' points below the constant shape ')} and "
            f"{ratio[f, 'constant']} faster, and {_below(split[f, 'control:cascade@0.5'], ' above its control ')} and "
            f"{ratio[f, 'control:cascade@0.5']} faster.",
            f"{_learning('cascade')} of processor time, the constant shape after "
            f"{_learning('constant').removesuffix(' s')}, its control after "
            f"{_learning('control:cascade').removesuffix(' s')}.",
            f"in {reached['cascade']['to_target']['median']:.1f} s of wall-clock time",
            f"That constant shape took {reached['constant@2']['to_target']['median']:.1f} s,",
            f"Cascade minus constant shape: {_points(split[f, 'constant'])}, {ratio[f, 'constant']} faster in",
            f"Cascade minus its control, of half the length: {split[f, 'control:cascade@0.5']}, "
            f"{ratio[f, 'control:cascade@0.5']} faster.",
            f"the undisturbed time of the constant shape of one length, {undisturbed:.1f} s, over the "
            f"{mean(_split(g)['cascade@1.5'], 'cpu_seconds'):.1f} s as measured, is the {least} above.",
        ],
    }


SPLIT = [
    *(("gestures", other) for other in ("constant", "constant@2", "control:cascade")),
    *(("fights", other) for other in ("constant", "control:cascade@0.5")),
]
"""What the cascade of one length is compared with in the first study."""


def _points(difference: str, before: str = "") -> str:
    """`+3.0 points (+0.8 to +5.6)`, with words before the interval."""
    points, _, bounds = difference.partition(" (")
    if before == "against":
        return f"{points} points against the constant shape (95 % interval {bounds}"
    return f"{points} points ({before}{bounds}"


def _below(difference: str, words: str) -> str:
    """`3.8 below (−10.8 to +2.1)`."""
    points, _, bounds = difference.partition(" (")
    return f"{points[1:]}{words}({bounds}"


def _margin(difference: str) -> int:
    """The smallest whole number of points with which non-inferiority is shown."""
    low = difference.partition("(")[2].partition(" ")[0]
    return math.floor(-float(low.replace("−", "-"))) + 1


def _learning(arm: str) -> str:
    """Processor time after which trainings on gestures passed 30 % on validation, lowest to highest."""
    passed = [
        next(seconds for seconds, _, value in run["curve"] if value > 0.3) * run["cpu_seconds"] / run["seconds"]
        for run in _split("gestures")[arm]
    ]
    return f"{min(passed):.0f} to {max(passed):.0f} s"


def _lowest_and_highest() -> str:
    shares = [accuracy("fights", plan, 0) for plan in ("cascade@1.15", CONSTANT, CONTROL)]
    return f"{min(shares).split()[0]} to {max(shares)}"


def _split_work(name: str, plan: str, other: str, digits: int) -> str:
    return times(mean(_split(name)[other], "work") / mean(_split(name)[plan], "work"), digits)
