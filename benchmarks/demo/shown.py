"""What the pages show of the demo's logs: of its study, of the trials before it, and of its former recipe."""

from functools import cache
from typing import Any

from benchmarks.comparisons import comparison, expected, results
from benchmarks.logs import interval, lines, mean, over, percent, signed, table, times

from vcycle.bench.statistics import Interval, welch_interval

__all__ = ["sentences", "tables"]

COMPARISON = comparison("demo")
"""The comparison of the study."""
SEEDS = 4
"""Those that `vcycle demo` trains."""

CONSTANT, CONTROL, PLAN = "constant", "control:cascade", "cascade"
FORMER = {
    CONSTANT: "constant shape",
    CONTROL: "control: constant shape, LR curve of the cascade",
    "long+short": "long+short cycles",
    PLAN: "cascade",
}


@cache
def tables() -> dict[str, str]:
    """The results, the trials by length and by LR schedule, and the results of a former recipe."""
    return {"results": results(COMPARISON), "lengths": _lengths(), "rates": _rates(), "former": _former_results()}


@cache
def _trials() -> dict[str, list[dict[str, Any]]]:
    """By plan and length in baselines, the first seed first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(lines("demo/trials.jsonl"), key=lambda run: run["seed"]):
        found.setdefault(run["plan"], []).append(run)
    return found


def _trial(plan: str) -> str:
    """The mean over seeds, and the processor time of one."""
    runs = _trials()[plan]
    return f"{percent(mean(runs, 'val'))} in {mean(runs, 'cpu_seconds'):.0f} s"


def _lengths() -> str:
    """Accuracy on validation, and processor time."""
    known = (plan.split("@") for plan in _trials() if ", " not in plan)
    lengths = sorted({length for _, length in known}, key=float)
    rows = [[length, *(_tried(f"{plan}@{length}") for plan in (CONSTANT, CONTROL, PLAN))] for length in lengths]
    return table(["length, in baselines", "constant shape", "its control", "cascade"], rows, left=0)


def _rates() -> str:
    """Accuracy on validation of the constant shape under other LR schedules, and processor time."""
    lengths, rows = ("0.8", "1", "1.2"), []
    for rate in ("", ", cosine from 0.06", ", 0.06 with a drop"):
        tried = (_tried(f"{CONSTANT}@{length}{rate}") for length in lengths)
        rows.append([rate.strip(", ") or "cosine from 0.1", *tried])
    return table(["LR", "0.8 lengths", "1 length", "1.2 lengths"], rows)


def _tried(plan: str) -> str:
    runs = _trials().get(plan, [])
    if not runs:
        return ""
    return f"{', '.join(percent(run['val']) for run in runs)}; {mean(runs, 'cpu_seconds'):.0f} s"


def _welch(first: list[float], second: list[float]) -> Interval:
    found = welch_interval(first, second)
    if found is None:
        raise ValueError(f"two seeds are needed, got {len(first)} and {len(second)}")
    return found


def _bounds(found: Interval) -> str:
    return interval(100 * found.low, 100 * found.high)


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
    equal_time = (
        f"on validation, the constant shape of 0.64 lengths had {_trial(f'{CONSTANT}@0.64')}, its control "
        f"{_trial(f'{CONTROL}@0.64')}, and the cascade {_trial(f'{PLAN}@1.5')}"
    )
    as_good = f"with 1.2 lengths the constant shape had {_trial(f'{CONSTANT}@1.2')}"
    former = {each: _former_difference(PLAN, each) for each in (CONSTANT, CONTROL)}
    far = _former_difference("long+short", CONSTANT)
    few, steps = _former("long+short")[0]["steps"], {plan: f"{_former(plan)[0]['steps']:,}" for plan in FORMER}
    return {
        "README.md": [
            f"the cascade trains {_faster()}.",
            f"Its accuracy {no_worse} than either's",
            f"ended at {percent(mean(_former('long+short'), 'test'))} where the constant shape had "
            f"{percent(mean(_former(CONSTANT), 'test'))}.",
            equal_time,
        ],
        "docs/expect.md": [
            f"none on gestures, {100 * (arms[CONTROL]['value'] - arms[CONSTANT]['value']):.1f} of "
            f"{100 * (arms[PLAN]['value'] - arms[CONSTANT]['value']):.1f} points of accuracy on the demo",
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
            equal_time,
        ],
        "benchmarks/demo/README.md": [
            f"its accuracy on test videos {no_worse}.",
            f"the speed-up's range over five turns is {times(constant['speedup_low'], 2)} to "
            f"{times(constant['speedup_high'], 2)}. The processor times of the whole trainings were "
            f"{arms[CONSTANT]['cpu_seconds']:.1f} s, {arms[CONTROL]['cpu_seconds']:.1f} s and "
            f"{arms[PLAN]['cpu_seconds']:.1f} s.",
            as_good,
            f"cycles out, which ended {-100 * far.difference:.0f} points below.",
            f"| training, {SEEDS} seeds of three plans | {_trained(SEEDS):.0f} s |",
            f"The cascade was {-100 * former[CONSTANT].difference:.1f} points below both (95 % interval "
            f"{_bounds(former[CONSTANT])}, Welch)",
            f"updates of the former constant shape ({few} and {steps[CONSTANT]})",
            equal_time,
        ],
    }


def _faster() -> str:
    """The speed-ups over the constant shape and over the control."""
    over_constant, over_control = (
        times(COMPARISON["arms"][PLAN][against]["speedup"]) for against in ("over_constant", "over_control")
    )
    if over_constant == over_control:
        return f"**{over_constant} faster** than the usual constant shape and than its LR-matched control"
    both = f"{over_control} faster than its LR-matched control"
    return f"**{over_constant} faster** than the usual constant shape and {both}"


def _trained(seeds: int) -> float:
    seconds: float = sum(run["cpu_seconds"] for run in lines("demo/study.jsonl") if run["seed"] < seeds)
    return seconds
