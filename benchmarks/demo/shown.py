"""What the pages show of the demo's log."""

import math
from functools import cache
from typing import Any

from benchmarks.logs import filled, interval, lines, load, over, percent, signed, table, times

__all__ = ["comparison", "sentences", "tables"]

NAMES = {
    "constant": "constant shape",
    "control:cascade": "control: constant shape, LR curve of the cascade",
    "long+short": "long+short cycles",
    "cascade": "**cascade**",
}


@cache
def comparison() -> dict[str, Any]:
    """The comparison of the study."""
    found: dict[str, Any] = load("demo/comparison.json")
    return found


@cache
def tables() -> dict[str, str]:
    """The results, and the accuracy on validation by length."""
    return {"results": f"{_results()}\n\n{filled(_differences())}", "lengths": _lengths()}


def _results() -> str:
    rows = []
    for name, arm in comparison()["arms"].items():
        bold = "**" * (name == comparison()["plan"])
        constant, control = (arm.get(key, {}).get("speedup") for key in ("over_constant", "over_control"))
        rows.append(
            [
                NAMES[name],
                f"{arm['train_seconds']:.1f} s",
                f"{arm['steps']:,}",
                f"{percent(arm['value'])} ± {100 * arm['value_std']:.1f}",
                "1×" if constant is None else f"{bold}{times(constant)}{bold}",
                "" if control is None else f"{bold}{times(control)}{bold}",
            ]
        )
    head = ["plan", "training time", "steps", "accuracy (test)", "speed-up over constant shape", "over its control"]
    return table(head, rows)


def _differences() -> str:
    arm, about = comparison()["arms"]["cascade"], comparison()["environments"][0]
    seeds = {2: "Two", 3: "Three", 4: "Four", 5: "Five"}[arm["seeds"]]
    constant, control = (arm[key]["difference"] for key in ("over_constant", "over_control"))
    return (
        f"{seeds} seeds on {about['cores']} CPU cores, torch {about['torch']}; ± is the standard deviation over seeds. "
        f"Accuracy of the cascade minus the constant shape's: {_apart(constant)}; "
        f"minus its control's: {_apart(control)}."
    )


def _apart(found: dict[str, float]) -> str:
    bounds = interval(100 * found["low"], 100 * found["high"])
    return f"{signed(100 * found['difference'])} points (95 % interval {bounds})"


def _margin(*found: dict[str, Any]) -> int:
    """The smallest whole number of points with which non-inferiority is shown."""
    lowest: float = min(each["difference"]["low"] for each in found)
    return math.floor(-100 * lowest) + 1


def _lengths() -> str:
    found = {run["arm"]: run["val"] for run in lines("demo/budget.jsonl")}
    rows = []
    for length in ("0.5", "1", "2"):
        arms = (found.get(f"{name}@{length}") for name in ("constant", "control:cascade"))
        rows.append([length, *("" if value is None else percent(value) for value in arms)])
    return table(["length, in baselines", "constant shape", "its control"], rows, left=0)


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    arms = comparison()["arms"]
    cascade, control, long_short = arms["cascade"], arms["control:cascade"], arms["long+short"]
    constant, of_control = cascade["over_constant"], cascade["over_control"]
    speedup, shapes, curve = (times(each["speedup"]) for each in (constant, of_control, control["over_constant"]))
    lower = f"{-100 * constant['difference']['difference']:.1f}"
    bounds = interval(100 * constant["difference"]["low"], 100 * constant["difference"]["high"])
    steps = {name: f"{arm['steps']:,}" for name, arm in arms.items()}
    work = {name: times(arms["constant"]["work"] / arm["work"]) for name, arm in arms.items()}
    return {
        "README.md": [
            f"the cascade trains **{speedup} faster** than the usual constant shape and ends {lower} points lower "
            f"(95 % interval {bounds}):",
            f"steps of the constant shape for the same accuracy ({curve}; lengths were chosen on validation), and the "
            f"shapes give {shapes} on top of that",
            f"On the demo they end at {percent(long_short['value'])} where the constant shape has "
            f"{percent(arms['constant']['value'])}.",
        ],
        "docs/expect.md": [
            f"schedule, which the control has too: {curve} of {speedup} on the demo, none on gestures.",
            f"holds on the demo (margin {_margin(constant, of_control)} points)",
            f"constant shape of one length: {steps['long+short']} of {steps['control:cascade']} on the demo,",
            f"| [demo](../benchmarks/demo/README.md), cascade | {work['cascade']} less | {speedup} | {shapes} "
            f"| {over(constant['difference']).replace(' ', ' points ', 1)} | {over(of_control['difference'])} |",
            f"| demo, long+short | {work['long+short']} less | {times(long_short['over_constant']['speedup'])} "
            f"| not measured | {signed(100 * long_short['over_constant']['difference']['difference'])} |",
        ],
        "benchmarks/demo/README.md": [
            f"It is {times(constant['speedup'], 2)} faster than the constant shape at "
            f"{_apart(constant['difference'])}, and {times(of_control['speedup'], 2)} faster than the control at "
            f"{_apart(of_control['difference'])}",
            f"makes a seventh of the updates of the constant shape, which has two ({steps['long+short']} and "
            f"{steps['constant']})",
        ],
    }
