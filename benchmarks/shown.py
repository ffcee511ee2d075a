"""What the pages show of several studies together."""

import re

from benchmarks.logs import HERE, times

__all__ = ["sentences"]


def _speedups() -> tuple[str, str]:
    """Of all cascades, over the constant shape and over the control, from the table of docs/expect.md."""
    text = (HERE.parent / "docs" / "expect.md").read_text(encoding="utf-8")
    head = "| | work | speed-up over the constant shape | over its control |"
    rows = [line.split(" | ") for line in text.partition(head)[2].partition("\n\n")[0].splitlines()[2:]]
    cells = [row[2:4] for row in rows if "long+short" not in row[0]]
    found = (
        [float(each[:-1]) for each in column if re.fullmatch(r"[\d.]+×", each)] for column in zip(*cells, strict=True)
    )
    constant, control = (f"{times(min(each))} to {times(max(each))}" for each in found)
    return constant, control


def sentences() -> dict[str, list[str]]:
    """By page."""
    constant, control = _speedups()
    return {
        "README.md": [f"video models faster ([{constant} measured](docs/expect.md)"],
        "docs/expect.md": [f"A cascade was {control} faster than a constant shape under the same LR schedule."],
    }
