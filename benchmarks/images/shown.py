"""What the pages show of the log of the images' demo."""

from functools import cache
from typing import Any

from benchmarks.demos import expected, results
from benchmarks.logs import load, times

__all__ = ["sentences", "tables"]


@cache
def _comparison() -> dict[str, Any]:
    found: dict[str, Any] = load("images/comparison.json")
    return found


@cache
def tables() -> dict[str, str]:
    """The results and the verdicts."""
    return {"results": results(_comparison())}


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    arms, margin = _comparison()["arms"], f"{100 * _comparison()['margin']:g}"
    constant, control = arms["cascade"]["over_constant"], arms["cascade"]["over_control"]
    low, high = constant["speedup_low"], constant["speedup_high"]
    return {
        "README.md": [
            f"with progressive resizing: {times(constant['speedup'])} faster on the small demo, non-inferior to the "
            f"constant size and to the control (margin {margin} points).",
        ],
        "docs/expect.md": [
            f"| [images' demo](../benchmarks/images/README.md), cascade | {' | '.join(expected(_comparison()))} |",
            f"on the demo of images ({margin} points)",
        ],
        "benchmarks/images/README.md": [
            f"their range over five turns is {times(low)} to {times(high)}. The processor times of the whole "
            f"trainings, which ran beside other programs, give {times(constant['cpu_speedup'])} and "
            f"{times(control['cpu_speedup'])}.",
        ],
    }
