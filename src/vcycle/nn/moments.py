"""Per-channel statistics that merge exactly over blocks of clips, micro-batches and ranks."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Moments", "merge_equal", "merge_moments"]


class Moments(NamedTuple):
    """Per-channel statistics of some values: enough to merge them with others exactly."""

    values: int
    """Number of values per channel."""
    mean: Tensor
    """Mean, shape ``(C,)``."""
    m2: Tensor
    """Sum of squared deviations from the mean, shape ``(C,)``."""
    of_all_ranks: bool = False
    """Whether they cover the whole batch that ranks share, rather than this rank's clips."""


def merge_moments(parts: Sequence[Moments]) -> Moments:
    """Return the moments of all values of all parts together (law of total variance).

    Blocks, micro-batches and ranks all use this function.
    """
    return reduce(_merge_two, parts)


def merge_equal(values: int, means: Tensor, variances: Tensor) -> Moments:
    """Merge blocks of ``values`` values each from their means and unbiased variances, shape ``(blocks, C)``."""
    between, mean = torch.var_mean(means, 0, correction=0)
    blocks = means.shape[0]
    m2 = variances.sum(0).mul_(values - 1).add_(between, alpha=values * blocks)
    return Moments(values * blocks, mean, m2)


def _merge_two(a: Moments, b: Moments) -> Moments:
    values = a.values + b.values
    delta = b.mean - a.mean
    mean = a.mean + delta * (b.values / values)
    m2 = a.m2 + b.m2 + delta.square() * (a.values * b.values / values)
    return Moments(values, mean, m2, a.of_all_ranks and b.of_all_ranks)
