"""What the pages show of the demo's logs: of its study, of the trials before it, and of its former recipe."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

from benchmarks.demos import comparison, expected, results
from benchmarks.logs import HERE, interval, lines, mean, over, percent, signed, table, times

from vcycle.bench.statistics import Interval, welch_interval

__all__ = ["sentences", "tables"]

COMPARISON = comparison("demo")
"""The comparison of the study."""

CONSTANT, CONTROL, PLAN = "constant", "control:cascade", "cascade"
FORMER = {
    CONSTANT: "constant shape",
    CONTROL: "control: constant shape, LR curve of the cascade",
    "long+short": "long+short cycles",
    PLAN: "cascade",
}
CLIPS = 60
"""For training, of each class."""


@cache
def tables() -> dict[str, str]:
    """The results, the trials by length, those with twice the clips, and the results of the former recipe."""
    return {
        "results": results(COMPARISON),
        "lengths": _lengths(CLIPS),
        "twice the clips": _lengths(2 * CLIPS),
        "former": _former_results(),
    }


@cache
def _trials(clips: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By plan and length in baselines, the first seed first."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in sorted(lines("demo/trials.jsonl"), key=lambda run: run["seed"]):
        if run["train_clips"] == clips:
            plan, _, length = run["plan"].partition("@")
            found.setdefault((plan, length or {CONTROL: "1", PLAN: "1.1"}[plan]), []).append(run)
    return found


def _lengths(clips: int) -> str:
    """Accuracy on validation, and processor time; but not the control of the cascade's own time."""
    lengths = sorted({length for _, length in _trials(clips)} - {"0.7"}, key=float)
    rows = [[length, *(_tried(clips, plan, length) for plan in (CONSTANT, CONTROL, PLAN))] for length in lengths]
    return table(["length, in baselines", "constant shape", "its control", "cascade"], rows, left=0)


def _tried(clips: int, plan: str, length: str) -> str:
    first, *others = _trials(clips).get((plan, length), [None])
    if first is None:
        return ""
    return "; ".join([_reached(first), *(f"seed {run['seed']}: {_reached(run)}" for run in others if run)])


def _reached(run: dict[str, Any]) -> str:
    return f"{percent(run['val'])}, {run['cpu_seconds']:.1f} s"


def _values(plan: str, seeds: int = 5) -> list[float]:
    """The accuracies on test of the study, of the first seeds."""
    return [run["test"] for run in lines("demo/study.jsonl") if run["arm"] == plan and run["seed"] < seeds]


def _welch(first: list[float], second: list[float]) -> Interval:
    found = welch_interval(first, second)
    if found is None:
        raise ValueError(f"two seeds are needed, got {len(first)} and {len(second)}")
    return found


def _bounds(found: Interval) -> str:
    return interval(100 * found.low, 100 * found.high)


def _chosen(other: str, seeds: int) -> tuple[int, int]:
    """How many choices of so many seeds of both plans show non-inferiority over seeds, and of how many."""
    choices = list(product(*(combinations(_values(plan), seeds) for plan in (PLAN, other))))
    shown = [_welch(list(first), list(second)).low > -COMPARISON["margin"] for first, second in choices]
    return sum(shown), len(shown)


def _printed() -> Iterator[str]:
    """Against the constant shape and the control, what the demo prints: the difference and two intervals."""
    text = (HERE / "demo" / "demo.txt").read_text(encoding="utf-8").replace("-", "−")
    number = r"([+−][\d.]+)"
    pattern = rf"accuracy {number} points \(95% intervals {number} to {number}, .*; {number} to {number}, Welch\)"
    for found in re.finditer(pattern, text):
        yield from (found[1], f"{found[2]} to {found[3]}", f"{found[4]} to {found[5]}")


@cache
def _former(plan: str) -> list[dict[str, Any]]:
    return [run for run in lines("demo/former.jsonl") if run["arm"] == plan]


def _former_times(plan: str, other: str) -> str:
    return times(mean(_former(other), "seconds") / mean(_former(plan), "seconds"))


def _former_work(plan: str) -> str:
    return times(mean(_former(CONSTANT), "work") / mean(_former(plan), "work"))


def _former_difference(plan: str, other: str) -> Interval:
    return _welch(*([run["test"] for run in _former(each)] for each in (plan, other)))


def _former_results() -> str:
    rows = []
    for plan, shown in FORMER.items():
        runs = _former(plan)
        rows.append(
            [
                shown,
                f"{mean(runs, 'seconds'):.1f} s",
                f"{runs[0]['steps']:,}",
                percent([run["test"] for run in runs]),
                "1×" if plan == CONSTANT else _former_times(plan, CONSTANT),
                _former_times(plan, CONTROL) if plan == PLAN else "",
            ]
        )
    head = ["plan", "training time", "steps", "accuracy (test)", "speed-up over constant shape", "over its control"]
    return table(head, rows)


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    arms, margin = COMPARISON["arms"], f"{100 * comparison('demo')['margin']:g}"
    constant, control = arms[PLAN]["over_constant"], arms[PLAN]["over_control"]
    shown = {gain["no_worse"] for gain in (constant, control)} == {"shown"}
    no_worse = f"{'is' if shown else 'is not shown to be'} not worse by more than {margin} points"
    *ratios, over_constant, over_control = expected(COMPARISON)
    cells = [*ratios, over_constant.replace(" ", " points ", 1), over_control]
    shorter, plan = _trials(CLIPS)[CONTROL, "0.7"][0], _trials(CLIPS)[PLAN, "1.4"][0]
    former = {each: _former_difference(PLAN, each) for each in (CONSTANT, CONTROL)}
    far = _former_difference("long+short", CONSTANT)
    few, steps = _former("long+short")[0]["steps"], {plan: f"{_former(plan)[0]['steps']:,}" for plan in FORMER}
    return {
        "README.md": [
            _faster("the cascade trains **{} faster** than the usual constant shape and than its LR-matched control. "),
            f"Its accuracy {no_worse} than either's",
            f"ended at {percent(mean(_former('long+short'), 'test'))} where the constant shape had "
            f"{percent(mean(_former(CONSTANT), 'test'))}.",
            f"({percent(shorter['val'])} and {percent(plan['val'])} on validation, one training each)",
        ],
        "docs/expect.md": [
            f"{_former_times(CONTROL, CONSTANT)} of {_former_times(PLAN, CONSTANT)} where the demo's constant shape "
            "decayed in the paper's steps.",
            f"holds on the demo (margin {margin} points)" if shown else "is inconclusive on the demo",
            f"constant shape of one length: {few} of {steps[CONTROL]} on the former demo,",
            f"| [demo](../benchmarks/demo/README.md), cascade | {' | '.join(cells)} |",
            f"| former demo, the paper's LR steps, shorter cascade | {_former_work(PLAN)} less "
            f"| {_former_times(PLAN, CONSTANT)} | {_former_times(PLAN, CONTROL)} "
            f"| {over(former[CONSTANT]._asdict())} | {over(former[CONTROL]._asdict())} |",
            f"| former demo, long+short | {_former_work('long+short')} less | {_former_times('long+short', CONSTANT)} "
            f"| not measured | {signed(100 * far.difference)} | not measured |",
            f"({percent(shorter['val'])} and {percent(plan['val'])} on validation, one training each)",
        ],
        "benchmarks/demo/README.md": [
            f"its accuracy on test videos {no_worse}.",
            *_of_fewer_seeds(),
            f"the speed-up's range over five turns is {times(constant['speedup_low'], 2)} to "
            f"{times(constant['speedup_high'], 2)}. The processor times of the whole trainings give "
            f"{times(constant['cpu_speedup'])} too ({arms[CONSTANT]['cpu_seconds']:.1f} s, "
            f"{arms[CONTROL]['cpu_seconds']:.1f} s and {arms[PLAN]['cpu_seconds']:.1f} s).",
            f"cycles out, which ended {-100 * far.difference:.0f} points below.",
            f"| training, 4 seeds of three plans | {_trained(4):.0f} s |",
            f"the first constant shape of the trials took {_trials(CLIPS)[CONSTANT, '1'][0]['cpu_seconds']:.1f} s, the "
            f"ones of the study {arms[CONSTANT]['cpu_seconds']:.0f} s.",
            f"The cascade was {-100 * former[CONSTANT].difference:.1f} points below both (95 % interval "
            f"{_bounds(former[CONSTANT])}, Welch)",
            f"updates of the former constant shape ({few} and {steps[CONSTANT]})",
            f"one of 0.7 baselines had {percent(shorter['val'])} on validation in {shorter['cpu_seconds']:.1f} s, the "
            f"cascade {percent(plan['val'])} in {plan['cpu_seconds']:.1f} s",
        ],
    }


def _faster(sentence: str) -> str:
    """With the speed-up over the constant shape and over the control, if they are shown as one."""
    found = {times(COMPARISON["arms"][PLAN][against]["speedup"]) for against in ("over_constant", "over_control")}
    if len(found) != 1:
        raise ValueError(f"the speed-ups differ: {', '.join(sorted(found))}: say both")
    return sentence.format(*found).strip()


def _trained(seeds: int) -> float:
    seconds: float = sum(run["cpu_seconds"] for run in lines("demo/study.jsonl") if run["seed"] < seeds)
    return seconds


def _of_fewer_seeds() -> list[str]:
    """Of the first four, which the demo trains, of the first three, and of all choices of so many."""
    four = list(_printed())
    three = [_welch(_values(PLAN, 3), _values(other, 3)) for other in (CONSTANT, CONTROL)]
    (first, of_three), (second, _) = (_chosen(other, 3) for other in (CONSTANT, CONTROL))
    (of_four,) = {_chosen(other, 4) for other in (CONSTANT, CONTROL)}
    every = f"all {of_four[1]} do" if of_four[0] == of_four[1] else f"{of_four[0]} of {of_four[1]} do"
    return [
        f"{four[0]} points against the constant shape (95 % CI {four[1]}, Welch {four[2]}), {four[3]} against the "
        f"control ({four[4]}, Welch {four[5]}).",
        f"({signed(100 * three[0].difference)} points, Welch {_bounds(three[0])}, and "
        f"{signed(100 * three[1].difference)}, {_bounds(three[1])}).",
        f"only {first} of {of_three} show it against the constant shape, and {second} against the control; of four, "
        f"{every}.",
    ]
