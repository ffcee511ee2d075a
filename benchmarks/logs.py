"""Reads the logs of the studies, and formats their numbers as the pages show them."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

__all__ = ["filled", "interval", "lines", "load", "mean", "over", "percent", "signed", "table", "times"]

HERE = Path(__file__).parent


def load(file: str) -> Any:
    """A JSON file, by its path under `benchmarks`."""
    return json.loads((HERE / file).read_text(encoding="utf-8"))


def lines(*files: str) -> list[dict[str, Any]]:
    """The lines of JSON Lines files, by their paths under `benchmarks`."""
    text = "".join((HERE / file).read_text(encoding="utf-8") for file in files)
    return [json.loads(line) for line in text.splitlines()]


def times(ratio: float, digits: int = 1) -> str:
    """How many times: `3.3×`."""
    return f"{ratio:.{digits}f}×"


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign: `−0.8`."""
    return f"{value:+.{digits}f}".replace("-", "−")


def interval(low: float, high: float, digits: int = 1) -> str:
    """An interval: `−1.6 to +0.0`."""
    return f"{signed(low, digits)} to {signed(high, digits)}"


def over(found: Mapping[str, float], scale: float = 100.0, digits: int = 1) -> str:
    """A difference with its interval, as `vcycle compare` writes both: `−0.8 (−1.6 to +0.0)`."""
    low, high = scale * found["low"], scale * found["high"]
    return f"{signed(scale * found['difference'], digits)} ({interval(low, high, digits)})"


def percent(shares: float | Sequence[float], digits: int = 1) -> str:
    """A share: `99.6 %`; of several, their mean and standard deviation: `99.6 % ± 0.3`."""
    if isinstance(shares, (int, float)):
        return f"{100 * shares:.{digits}f} %"
    return f"{percent(fmean(shares), digits)} ± {100 * stdev(shares):.{digits}f}"


def mean(runs: Iterable[Mapping[str, Any]], key: str) -> float:
    """The mean of a value over runs."""
    return fmean(run[key] for run in runs)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, whose first columns are flush left."""
    rule = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def filled(text: str) -> str:
    """A paragraph, wrapped as the pages are."""
    return textwrap.fill(text, 124, break_long_words=False, break_on_hyphens=False)
