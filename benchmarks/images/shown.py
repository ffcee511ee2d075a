"""What the pages show of the log of the images' demo."""

from functools import cache

from benchmarks.comparisons import comparison, expected, results
from benchmarks.logs import times

__all__ = ["sentences", "tables"]

COMPARISON = comparison("images")
"""The comparison of the study."""


@cache
def tables() -> dict[str, str]:
    """The results and the verdicts."""
    return {"results": results(COMPARISON)}


@cache
def sentences() -> dict[str, list[str]]:
    """By page."""
    arms, margin = COMPARISON["arms"], f"{100 * comparison('images')['margin']:g}"
    constant, control = arms["cascade"]["over_constant"], arms["cascade"]["over_control"]
    low, high = constant["speedup_low"], constant["speedup_high"]
    return {
        "README.md": [
            f"with progressive resizing: {times(constant['speedup'])} faster on the small demo, non-inferior to the "
            f"constant size and to the control (margin {margin} points).",
        ],
        "docs/expect.md": [
            f"| [images' demo](../benchmarks/images/README.md), cascade | {' | '.join(expected(COMPARISON))} |",
            f"on the demo of images ({margin} points)",
        ],
        "benchmarks/images/README.md": [
            f"their range over five turns is {times(low)} to {times(high)}. The processor times of the whole "
            f"trainings, which ran beside other programs, give {times(constant['cpu_speedup'])} and "
            f"{times(control['cpu_speedup'])}.",
        ],
    }
