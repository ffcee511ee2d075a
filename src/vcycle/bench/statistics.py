"""Intervals for what was measured over seeds."""

import math
import statistics
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["Interval", "Verdict", "clip_interval", "mean", "no_worse", "paired_bootstrap", "spread", "welch_interval"]

Verdict = Literal["shown", "not shown", "shown worse"]


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
    if spread(a) == spread(b) == 0:
        return Interval(difference, difference, difference, confidence)
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the values of one side may be equal
        found = ttest_ind(a, b, equal_var=False).confidence_interval(confidence)
    return Interval(difference, float(found.low), float(found.high), confidence)


def clip_interval(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], confidence: float = 0.95, *, shares: bool
) -> Interval | None:
    """Student's interval of `mean(a) - mean(b)` over clips, a clip's difference being its mean over the seeds.

    A bootstrap draws nothing but what is there. Of two clips it is between the two, which the truth is not in every
    second time; where every clip comes out alike it is a point. This one knows how few they are.

    Args:
        a: A row per seed, a value per clip.
        b: The same seeds and clips.
        confidence: Of the interval.
        shares: Whether values are 0 and 1. Then one clip won and one lost are counted on top, so that clips that all
            come out alike are no certainty (Bonett and Price 2012, for the difference of two paired shares).

    Returns:
        The interval; None without a seed or below two clips.
    """
    if not a or len(a[0]) < 2:
        return None
    pairs = zip(zip(*a, strict=True), zip(*b, strict=True), strict=True)
    differences = [mean(of_a) - mean(of_b) for of_a, of_b in pairs]
    counted = [*differences, 1.0, -1.0] if shares else differences
    middle = mean(counted)
    half = _student(len(counted) - 1, confidence) * spread(counted) / math.sqrt(len(counted))
    return Interval(mean(differences), middle - half, middle + half, confidence)


def _student(freedom: float, confidence: float) -> float:
    """Standard errors that a two-sided interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def paired_bootstrap(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], confidence: float = 0.95, *, resamples: int = 10_000
) -> Interval | None:
    """Percentile interval of `mean(a) - mean(b)`, with both seeds and clips drawn anew, the same for `a` and `b`.

    A few dozen test clips are a sample too: an interval over seeds alone speaks of these very clips.

    Args:
        a: A row per seed, a value per clip, such as 1 where it was recognised, else 0; nan where a seed has none, as in
            cross-validation of which not every fold was trained.
        b: The same seeds and clips.
        confidence: Of the interval.
        resamples: Draws; they are the same at every call.

    Returns:
        The interval; None below two seeds or two clips.

    Raises:
        ValueError: if the two differ in shape.
    """
    import numpy as np

    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"seeds and clips {first.shape} and {second.shape}: the same two numbers are needed")
    seeds, clips = first.shape
    if min(seeds, clips) < 2:
        return None
    differences = first - second
    known = ~np.isnan(differences)
    values = np.where(known, differences, 0.0)
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(resamples):
        of_seeds = np.bincount(generator.integers(seeds, size=seeds), minlength=seeds)
        of_clips = np.bincount(generator.integers(clips, size=clips), minlength=clips)
        if counted := of_seeds @ known @ of_clips:
            drawn.append(of_seeds @ values @ of_clips / counted)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(np.nanmean(differences)), float(low), float(high), confidence)


def no_worse(intervals: Sequence[Interval], margin: float) -> Verdict:
    """Whether a loss of more than a margin is ruled out, or is certain, by every one of some intervals.

    An interval that lies on both sides of the margin shows neither, and so do none at all: what is not shown is not
    therefore equal. Nor do points alone: on a few clips, trainings may well come out alike by chance.

    Args:
        intervals: Of one difference, by one method each. A bootstrap over a few seeds or clips is narrower than it
            should be, Welch's interval knows nothing of the test clips, that over clips nothing of the seeds: all have
            to agree.
        margin: The loss that is accepted, above 0.

    Example:
        >>> no_worse([Interval(0.0, -0.004, 0.004, 0.95), Interval(0.0, -0.02, 0.02, 0.95)], 0.01)
        'not shown'
    """
    if all(i.low == i.high for i in intervals):
        return "not shown"
    if all(i.low > -margin for i in intervals):
        return "shown"
    return "shown worse" if all(i.high < -margin for i in intervals) else "not shown"
