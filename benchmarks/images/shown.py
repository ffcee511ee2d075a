"""What the pages show of the log of the images' demo.

python -m benchmarks.images.shown STUDY takes the comparison from the folder of a study, without the trainings, which
study.jsonl has.
"""

import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.logs import HERE, interval, load, over, percent, signed, table, times

__all__ = ["sentences", "tables"]


@cache
def _comparison() -> dict[str, Any]:
    found: dict[str, Any] = load("images/comparison.json")
    return found


@cache
def tables() -> dict[str, str]:
    """The results and the verdicts."""
    return {"results": "\n".join([_table(), "", *_verdicts()])}


def _table() -> str:
    """A row per plan, with its time and speed-up by steps timed in turns."""
    rows = []
    for name, arm in _comparison()["arms"].items():
        ratios = (times(arm[over]["speedup"]) if over in arm else "" for over in ("over_constant", "over_control"))
        value = f"{percent(arm['value'])} ± {100 * arm['value_std']:.1f}"
        rows.append([f"`{name}`", f"{arm['steps']:,}", f"{arm['train_seconds']:.1f} s", value, *ratios])
    head = ["plan", "steps", "training time", "top-1 (test)", "speed-up over constant shape", "over its control"]
    return table(head, rows)


def _verdicts() -> list[str]:
    """A line per reference: the difference, its intervals, and whether non-inferiority is shown."""
    found = _comparison()
    arm, shown = found["arms"][found["plan"]], []
    for against, reference in (("over_constant", "the constant shape"), ("over_control", "its control")):
        gain = arm[against]
        verdict = {"shown": "shown", "not shown": "inconclusive", "shown worse": "refuted"}[gain["no_worse"]]
        shown.append(
            f"- `{found['plan']}` minus {reference}: {signed(100 * gain['paired']['difference'])} points (95 % CI "
            f"{_range(gain['paired'])} over seeds and images, {_range(gain['difference'])} over seeds alone); "
            f"non-inferiority (margin {100 * found['margin']:g} points): {verdict}."
        )
    return shown


def _range(found: Mapping[str, float]) -> str:
    return interval(100 * found["low"], 100 * found["high"])


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    arms, margin = _comparison()["arms"], f"{100 * _comparison()['margin']:g}"
    constant, control = arms["cascade"]["over_constant"], arms["cascade"]["over_control"]
    work = times(arms["constant"]["work"] / arms["cascade"]["work"])
    low, high = constant["speedup_low"], constant["speedup_high"]
    return {
        "README.md": [
            f"with progressive resizing: {times(constant['speedup'])} faster on the small demo, non-inferior to the "
            f"constant size and to the control (margin {margin} points).",
        ],
        "docs/expect.md": [
            f"| [images' demo](../benchmarks/images/README.md), cascade | {work} less | {times(constant['speedup'])} "
            f"| {times(control['speedup'])} | {over(constant['paired'])} | {over(control['paired'])} |",
            f"on the demo of images ({margin} points)",
        ],
        "benchmarks/images/README.md": [
            f"their range over five turns is {times(low)} to {times(high)}. The processor times of the whole "
            f"trainings, which ran beside other programs, give {times(constant['cpu_speedup'])} and "
            f"{times(control['cpu_speedup'])}.",
        ],
    }


if __name__ == "__main__":
    taken = json.loads((Path(sys.argv[1]) / "comparison.json").read_text(encoding="utf-8"))
    del taken["runs"]
    text = json.dumps(taken, indent=1, ensure_ascii=False) + "\n"
    (HERE / "images" / "comparison.json").write_text(text, encoding="utf-8")
