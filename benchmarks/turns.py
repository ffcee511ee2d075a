"""Reads logs of trainings that were measured in turns (`benchmarks/peers/measuring.py`), and formats what they say."""

import math
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.logs import lines, percent, times
from vcycle.bench.timing import Spread, ratios

__all__ = ["Turns", "causes", "less", "range_of", "spread"]


class Turns:
    """What the arms of a log took, turn by turn."""

    def __init__(self, file: str) -> None:
        """Read a log, by its path under `benchmarks`."""
        self._turns = [line for line in lines(file) if line["kind"] == "turn"]
        self._turns.sort(key=lambda line: int(line["turn"]))

    def spent(self, arm: str, *what: str) -> list[float]:
        """Seconds per 1,000 clips of an arm: the sum of `main`, `loading` or `wall`."""
        own = [line for line in self._turns if line["arm"] == arm]
        return [sum(1e3 * line[each] / line["clips"] for each in what) for line in own]

    def total(self, arm: str) -> list[float]:
        """Processor seconds of all processes per 1,000 clips."""
        return self.spent(arm, "main", "loading")

    def against(self, arm: str, other: str) -> Spread:
        """How many times the processor time of another arm."""
        return ratios(self.total(arm), self.total(other))


def causes(chain: Sequence[Sequence[float]]) -> list[str]:
    """The factor from each of several times to the next, turn by turn, and the share of each in their product."""
    found = [ratios(slow, fast) for slow, fast in pairwise(chain)]
    logs = [math.log(factor.median) for factor in found]
    shares = (percent(log / sum(logs), 0).replace("-", "−") for log in logs)
    return [f"{spread(factor, 2, '×')}, {share}" for factor, share in zip(found, shares, strict=True)]


def spread(found: Spread, digits: int = 1, unit: str = "") -> str:
    """Median, lowest and highest: `3.3 (3.1 to 3.4)`."""
    median, low, high = (f"{value:.{digits}f}{unit}" for value in (found.median, found.low, found.high))
    return f"{median} ({low} to {high})"


def less(found: Spread) -> str:
    """The median of ratios: `3.3×`."""
    return times(found.median)


def range_of(found: Spread) -> str:
    """The range of ratios: `(3.1× to 3.4×)`."""
    return f"({times(found.low)} to {times(found.high)})"
