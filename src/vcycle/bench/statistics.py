"""Confidence intervals and non-inferiority tests over seeds and test clips."""

import math
import statistics
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Interval", "Verdict", "clip_interval", "mean", "no_worse", "paired_bootstrap", "spread", "welch_interval"]

Verdict = Literal["shown", "not shown", "shown worse"]

_AT_ONCE = 60_000
"""Values of resampled seeds and clips in memory: few enough for a cache."""
_FEW = 300
"""Seeds and clips of a resample, below which all of a block are drawn at once."""


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
    """Welch's interval of `mean(a) - mean(b)`, for unequal variances; None for fewer than two values on a side."""
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
    """Student's interval of `mean(a) - mean(b)` over clips; a clip's difference is its mean over the seeds.

    A bootstrap only resamples the given clips. With two clips its interval spans just these two and misses the true
    value every second time; if all clips are equal, it is a point. Student's interval accounts for the sample size.

    Args:
        a: A row per seed, a value per clip.
        b: The same seeds and clips.
        confidence: Of the interval.
        shares: Whether values are 0 and 1. One clip won and one lost are then added, so that equal clips do not give
            certainty (Bonett and Price 2012, for the difference of two paired proportions).

    Returns:
        The interval; None without a seed or with fewer than two clips.
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
    """Half-width of a two-sided Student interval, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def paired_bootstrap(
    a: "ArrayLike",
    b: "ArrayLike",
    confidence: float = 0.95,
    *,
    clusters: Sequence[int] | None = None,
    resamples: int = 10_000,
) -> Interval | None:
    """Percentile interval of `mean(a) - mean(b)`, resampling seeds and clips together for `a` and `b`.

    A few dozen test clips are a sample too: an interval over seeds alone holds for these clips only. So are a few
    people who made all the clips: with `clusters`, people are resampled, each with all of their clips.

    Args:
        a: A row per seed, a value per clip, such as 1 if correct, else 0; nan if a seed has no value for a clip, as in
            cross-validation with untrained folds.
        b: The same seeds and clips.
        confidence: Of the interval.
        clusters: The cluster of each clip, numbered from 0, such as its person; by default each clip is its own.
        resamples: Number of bootstrap samples, identical in every call.

    Returns:
        The interval; None with fewer than two seeds or two clusters.

    Raises:
        ValueError: if the two differ in shape, or not every clip has a cluster.
    """
    import numpy as np

    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"seeds and clips {first.shape} and {second.shape}: the same two numbers are needed")
    seeds, clips = first.shape
    of = np.arange(clips) if clusters is None else np.asarray(clusters)
    if of.shape != (clips,):
        raise ValueError(f"clusters of shape {of.shape} for {clips} clips: one for each clip is needed")
    units = int(of.max(initial=-1)) + 1
    if min(seeds, units) < 2:
        return None
    differences = first - second
    known = ~np.isnan(differences)
    values = np.where(known, differences, 0.0)
    generator = np.random.default_rng(0)
    block = max(1, _AT_ONCE // (seeds + clips))
    drawn = []
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        if seeds + units < _FEW:
            chosen = generator.integers([seeds] * seeds + [units] * units, size=(rows, seeds + units))
        else:  # the same numbers, faster for long rows
            chosen = np.empty((rows, seeds + units), dtype=np.int64)
            for row in chosen:
                row[:seeds] = generator.integers(seeds, size=seeds)
                row[seeds:] = generator.integers(units, size=units)
        of_seeds = _counted(chosen[:, :seeds], seeds)
        of_units = _counted(chosen[:, seeds:], units)
        of_clips = of_units if clusters is None else of_units[:, of]
        counted = np.einsum("rc,rc->r", of_seeds @ known, of_clips)
        total = np.einsum("rc,rc->r", of_seeds @ values, of_clips)
        drawn.append(total[counted > 0] / counted[counted > 0])
    low, high = np.quantile(np.concatenate(drawn), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(np.nanmean(differences)), float(low), float(high), confidence)


def _counted(chosen: "NDArray[np.int64]", units: int) -> "NDArray[np.float64]":
    """How often each row has each number below `units`."""
    import numpy as np

    rows = len(chosen)
    places = (chosen + units * np.arange(rows)[:, None]).ravel()
    return np.bincount(places, minlength=units * rows).reshape(rows, units).astype(np.float64)


def no_worse(intervals: Sequence[Interval], margin: float) -> Verdict:
    """Test non-inferiority: whether all intervals rule out, or all confirm, a loss of more than the margin.

    The result is inconclusive ("not shown") if an interval spans the margin or there is none; inconclusive does not
    mean equal. It is also inconclusive if all intervals are points: on a few clips, results may be equal by chance.

    Args:
        intervals: Intervals of one difference, each by another method. All must agree: a bootstrap over a few seeds or
            clips is too narrow, Welch's interval ignores the test clips, and the interval over clips ignores the seeds.
        margin: The largest acceptable loss, above 0.

    Example:
        >>> no_worse([Interval(0.0, -0.004, 0.004, 0.95), Interval(0.0, -0.02, 0.02, 0.95)], 0.01)
        'not shown'
    """
    if all(i.low == i.high for i in intervals):
        return "not shown"
    if all(i.low > -margin for i in intervals):
        return "shown"
    return "shown worse" if all(i.high < -margin for i in intervals) else "not shown"
