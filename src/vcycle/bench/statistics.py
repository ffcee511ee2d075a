"""Intervals for what was measured over seeds."""

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
    return sum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    center = mean(values)
    return float((sum((v - center) ** 2 for v in values) / (len(values) - 1)) ** 0.5)


def welch_interval(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Welch's interval of `mean(a) - mean(b)`, of unequal variances; None below two values a side."""
    if min(len(a), len(b)) < 2:
        return None
    difference = mean(a) - mean(b)
    if spread(a) == spread(b) == 0:
        return Interval(difference, difference, difference, confidence)
    from scipy.stats import ttest_ind

    low, high = ttest_ind(a, b, equal_var=False).confidence_interval(confidence)
    return Interval(difference, float(low), float(high), confidence)
