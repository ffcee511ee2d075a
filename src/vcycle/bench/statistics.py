"""Intervals for what was measured over seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Interval", "mean", "spread", "welch_interval"]


class Interval(NamedTuple):
    """A difference of means with its confidence interval."""

    difference: float
    low: float
    high: float
    confidence: float


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return statistics.fmean(values)


def spread(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value, and exactly 0 for equal ones."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def welch_interval(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Welch's interval of `mean(a) - mean(b)`, of unequal variances; None below two values a side."""
    if min(len(a), len(b)) < 2:
        return None
    difference = mean(a) - mean(b)
    of_a, of_b = (statistics.variance(x) / len(x) for x in (a, b))
    error = of_a + of_b
    if error == 0:
        return Interval(difference, difference, difference, confidence)
    from scipy.special import stdtrit

    freedom = error**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(error)
    return Interval(difference, difference - half, difference + half, confidence)
