"""Balanced sampling: groups of items, such as classes, in other shares than the dataset has them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vcycle.errors import DataError

__all__ = ["Balance", "quotas_of"]

_FINE = 2**20
"""Weights are whole multiples of 1 / this: powers may differ in the last bit between machines."""
_BLOCK = 1 << 20
"""Groups that are hashed at a time."""


def quotas_of(counts: NDArray[np.int64], strength: float) -> NDArray[np.int64]:
    """Samples of each group in an epoch of a `Balance`, by the number of its items."""
    weights = np.where(counts > 0, np.rint(counts ** (1.0 - strength) * _FINE), 0.0).astype(np.int64)
    size, total = int(counts.sum()), int(weights.sum())
    ends = [(2 * end * size + total) // (2 * total) for end in np.cumsum(weights).tolist()]  # rounded, exactly
    edges: NDArray[np.int64] = np.array([0, *ends], dtype=np.int64)
    return np.diff(edges)


class Balance:
    """Draws groups of items, such as classes, equally often, or nearly so: for ``vcycle.steps`` and ``vcycle.loader``.

    An epoch has as many samples as the dataset has items. The share of a group of n items in it is proportional to
    n^(1 − strength): equal for strength 1, and square roots of the numbers for 0.5. Within a group, each item is drawn
    once before any is drawn again, over epochs too.

    Example:
        ``vcycle.steps(dataset, plan, balance=Balance(labels))``

        >>> Balance([0, 0, 0, 0, 0, 0, 1, 1]).quotas.tolist()
        [4, 4]
        >>> Balance([0] * 80 + [1] * 20, strength=0.5).quotas.tolist()
        [67, 33]
    """

    def __init__(self, groups: Sequence[int] | NDArray[np.integer], strength: float = 1.0) -> None:
        """Count and sort the groups; 10 million items take 40 MB.

        Args:
            groups: The group of each item of the dataset, from 0: its class.
            strength: From 0, as the dataset is, to 1, all groups equally often.

        Raises:
            DataError: If the groups are no whole numbers from 0, or the strength is out of range.
        """
        found = np.asarray(groups)
        if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu" or int(found.min()) < 0:
            raise DataError(f"Balance: groups are {found.dtype} {found.shape}: one whole number per item, from 0")
        if not 0 <= strength <= 1:
            raise DataError(f"Balance: strength={strength!r}: must be from 0 to 1")
        self.strength = strength = float(strength)  # 1 is the same order as 1.0
        self._size = size = len(found)
        self._counts = counts = np.bincount(found)
        self._quotas = quotas_of(counts, strength)
        for given_away in (self._counts, self._quotas):
            given_away.setflags(write=False)
        self._ends = np.cumsum(self._quotas)
        self._firsts = np.cumsum(counts) - counts
        self._order = np.argsort(found, kind="stable").astype(np.uint32 if size < 2**32 else np.int64)
        digest = hashlib.blake2b(f"{strength!r}:{size}".encode(), digest_size=6)
        for first in range(0, size, _BLOCK):
            digest.update(found[first : first + _BLOCK].astype("<i8").tobytes())
        self.digest = digest.hexdigest()
        """Identifies the groups and the strength."""

    def __len__(self) -> int:
        """Return the number of items."""
        return self._size

    @property
    def quotas(self) -> NDArray[np.int64]:
        """Samples of each group in an epoch."""
        return self._quotas

    @property
    def counts(self) -> NDArray[np.int64]:
        """Items of each group."""
        return self._counts

    @property
    def max_repeats(self) -> int:
        """The most samples of one item in an epoch."""
        return int((-(-self.quotas // np.maximum(self._counts, 1))).max())

    def items(
        self,
        slots: NDArray[np.int64],
        epoch: int,
        permuted: Callable[
            [NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]
        ],
    ) -> NDArray[np.int64]:
        """Return the items at some slots of an epoch, of which each group has as many in succession as its quota.

        Args:
            slots: Numbers in ``[0, len(self))``.
            epoch: The epoch, from 0.
            permuted: Maps each point through a permutation of its own: the points; the number of the permutation of
                each; the size of each permutation; and the key of each, ``(permutations, 2)``: a group, and a
                pass over it.
        """
        groups = np.searchsorted(self._ends, slots, side="right")
        quotas = self._quotas[groups]
        draws = epoch * quotas + slots - (self._ends[groups] - quotas)
        passes, places = np.divmod(draws, self._counts[groups])
        by_pass = np.lexsort((passes, groups))
        begins = np.diff(groups[by_pass], prepend=-1).astype(bool) | np.diff(passes[by_pass], prepend=-1).astype(bool)
        numbers = np.empty_like(places)
        numbers[by_pass] = np.cumsum(begins) - 1
        each = by_pass[begins]
        identities = np.stack([groups[each], passes[each]], axis=1)
        places = permuted(places, numbers, self._counts[groups[each]], identities)
        found: NDArray[np.int64] = self._order[self._firsts[groups] + places].astype(np.int64)
        return found
