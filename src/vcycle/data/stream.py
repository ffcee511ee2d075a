"""The training stream: keyed permutations of the dataset, one per epoch, concatenated.

A permutation is evaluated point by point, so ten thousand million samples need no list, and any position can be
computed without replaying those before it.
"""

import hashlib
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vcycle.data.balance import Balance
from vcycle.errors import DataError, shown
from vcycle.plan.arguments import check_number

__all__ = ["SampleStream", "permute", "permute_each"]

_ROUNDS = 8
_SMALLEST_DOMAIN_BITS = 6  # fewer give the rounds too few distinct functions to mix well
_SMALLEST_DOMAIN = np.arange(1 << _SMALLEST_DOMAIN_BITS, dtype=np.uint64)
_BLOCK = 1 << 14  # positions that are computed at a time: each may have a permutation of its own
_LARGEST = 2**48
_WITHIN_GROUP = 2  # purpose of keyed permutations; 1 is the replacement of bad items, which has a longer key


def _mix(words: NDArray[np.uint64], key: np.uint64 | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit words under a key: MurmurHash3's finaliser, where each output bit sees every input bit."""
    words = words + key
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xFF51AFD7ED558CCD)
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xC4CEB9FE1A85EC53)
    words ^= words >> np.uint64(33)
    return words


def _shuffle_bits(
    points: NDArray[np.uint64], bits: np.uint64 | NDArray[np.uint64], keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """A bijection of ``[0, 2**bits)``: a Feistel network whose halves may differ by one bit.

    Each half is xored in turn with a keyed hash of the other, which can be undone, so the network is bijective.

    Args:
        points: Values in that range.
        bits: The range: of all points, or of each.
        keys: The key of each round, a row each: of all points, or of each.
    """
    low_bits = bits >> np.uint64(1)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    high_mask = (np.uint64(1) << (bits - low_bits)) - np.uint64(1)
    low, high = points & low_mask, points >> low_bits
    for turn, key in enumerate(keys):
        if turn % 2:
            low = low ^ (_mix(high, key) & low_mask)
        else:
            high = high ^ (_mix(low, key) & high_mask)
    return (high << low_bits) | low


def _keys(identities: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
    """The key of each round, by the whole numbers that identify each permutation: ``(permutations, rounds)``."""
    digests = (
        hashlib.blake2b(
            struct.pack(f"<{len(identity)}q", *identity), digest_size=8 * _ROUNDS, person=b"vcycle stream"
        ).digest()
        for identity in identities
    )
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64).reshape(-1, _ROUNDS)


def permute(points: NDArray[np.int64], size: int, *key: int) -> NDArray[np.int64]:
    """Map points through the permutation of ``[0, size)`` given by a key.

    Args:
        points: Values in ``[0, size)``, any shape.
        size: Length of the permuted range, at least 1.
        key: Signed 64-bit integers; different keys give unrelated permutations.

    The Feistel network permutes the next power of two; a point that lands outside the range follows its cycle until it
    is inside, at most two evaluations on average. For the smallest ranges that would take long: they use the shuffled
    64 points of the smallest domain, without those outside.
    """
    (keys,) = _keys([key])
    bits = np.uint64(max((size - 1).bit_length(), _SMALLEST_DOMAIN_BITS))
    if bits == _SMALLEST_DOMAIN_BITS:
        shuffled = _shuffle_bits(_SMALLEST_DOMAIN, bits, keys)
        return shuffled[shuffled < size].astype(np.int64)[points]
    images = _shuffle_bits(points.ravel().astype(np.uint64), bits, keys)
    outside = np.flatnonzero(images >= size)
    while outside.size:
        walked = _shuffle_bits(images[outside], bits, keys)
        images[outside] = walked
        outside = outside[walked >= size]
    return images.astype(np.int64).reshape(points.shape)


def permute_each(
    points: NDArray[np.int64],
    numbers: NDArray[np.int64],
    sizes: NDArray[np.int64],
    identities: Sequence[Sequence[int]],
) -> NDArray[np.int64]:
    """Map each point through one of many permutations, as :func:`permute` with its size and key does.

    Args:
        points: Values, ``(N,)``, each in the range of its permutation.
        numbers: The permutation of each point, ``(N,)``, in ``[0, len(sizes))``.
        sizes: Length of the range of each permutation, at least 1.
        identities: Key of each permutation.
    """
    keys = _keys(identities)
    bits = np.maximum(np.frexp(sizes - 1.0)[1], _SMALLEST_DOMAIN_BITS).astype(np.uint64)
    found = np.empty_like(points)
    small = bits == _SMALLEST_DOMAIN_BITS
    in_small = small[numbers]
    shuffled = _shuffle_bits(_SMALLEST_DOMAIN, np.uint64(_SMALLEST_DOMAIN_BITS), keys[small].T[:, :, None])
    tables = shuffled[shuffled < sizes[small, None].astype(np.uint64)]  # one after another, as long as its size each
    begins = np.cumsum(np.where(small, sizes, 0)) - sizes
    found[in_small] = tables[begins[numbers[in_small]] + points[in_small]]
    large = np.flatnonzero(~in_small)
    images, of = points[large].astype(np.uint64), numbers[large]
    walking = np.arange(len(large))
    while walking.size:
        each = of[walking]
        images[walking] = walked = _shuffle_bits(images[walking], bits[each], keys[each].T)
        walking = walking[walked >= sizes[each].astype(np.uint64)]
    found[large] = images
    return found


class SampleStream:
    """Dataset indices in training order, as a function of the position in the stream.

    Position ``p`` belongs to epoch ``p // size``. Every epoch contains every sample exactly once, however the stream is
    split into batches; with a ``Balance``, each group of samples as often as its quota. Under repeated augmentation
    (``repeats`` of ``PlanBatchSampler``) a position of this stream is ``repeats`` samples of the training.

    Example:
        >>> stream = SampleStream(5, seed=0)
        >>> sorted(stream.indices(5, 5).tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, seed: int = 0, balance: Balance | None = None) -> None:
        """Create the stream of a dataset of ``size`` samples under a seed.

        Raises:
            DataError: If the dataset is empty or too large, ``balance`` is of another number of samples, or the
                seed is no whole number of 64 bits.
        """
        check_number("size", size, whole=True, error=DataError)
        if not 1 <= size <= _LARGEST:
            raise DataError(f"the dataset has {size:,} samples: training needs at least 1, at most {_LARGEST:,}")
        if balance is not None and not isinstance(balance, Balance):
            raise DataError(f"balance is {type(balance).__name__}, not a vcycle.data.Balance: give Balance(groups)")
        if balance is not None and len(balance) != size:
            raise DataError(f"balance is of {len(balance):,} items, but the dataset has {size:,}")
        self.size = size
        self.seed: int = check_number("seed", seed, whole=True, error=DataError)
        if not -(2**63) <= self.seed < 2**63:
            raise DataError(f"seed is {shown(self.seed)}: a signed number of 64 bits is needed")
        self.balance = balance

    def epoch(self, position: int) -> int:
        """Return the epoch, from 0, of a position in the stream."""
        return position // self.size

    def indices(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the dataset indices at positions ``[first, first + count)``."""
        if first < 0 or count < 0:
            raise ValueError(f"first={first}, count={count}: positions in the stream must not be negative")
        found = np.empty(count, dtype=np.int64)
        done = 0
        while done < count:
            epoch, offset = divmod(first + done, self.size)
            stop = min(offset + count - done, offset + _BLOCK, self.size)
            points = np.arange(offset, stop, dtype=np.int64)
            found[done : done + len(points)] = self._of_epoch(points, epoch)
            done += len(points)
        return found

    def _of_epoch(self, points: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        slots = permute(points, self.size, self.seed, epoch)
        if self.balance is None:
            return slots
        return self.balance.items(
            slots,
            epoch,
            lambda places, numbers, sizes, turns: permute_each(
                places, numbers, sizes, [(self.seed, turn, group, _WITHIN_GROUP) for group, turn in turns.tolist()]
            ),
        )
