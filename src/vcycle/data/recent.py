"""A cache of recently used values with a size limit: indexes, listings, times."""

import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Generic, TypeVar

import numpy as np

__all__ = ["Recent"]

_Value = TypeVar("_Value")

_MOST_BYTES = 64 << 20  # seven thousand videos of ten seconds, or two dozen of an hour


class Recent(Generic[_Value]):
    """Computes a value per item on first use, and keeps recent ones up to a total size; exceptions are not cached.

    ``functools.lru_cache`` limits the number of values, whose sizes may differ a thousandfold, and cannot be pickled,
    as a dataset sent to another process must be.

    Example:
        >>> lengths = Recent(lambda item: "a" * item, most_bytes=110)
        >>> [lengths(item) for item in (1, 2, 3)], len(lengths)
        (['a', 'aa', 'aaa'], 2)
    """

    def __init__(self, make: Callable[[int], _Value], *, most_bytes: int = _MOST_BYTES) -> None:
        """Cache the values of ``make``, up to ``most_bytes``; the latest value always stays."""
        self._make = make
        self._most = most_bytes
        self._bytes = 0
        self._values: OrderedDict[int, _Value] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of cached items."""
        return len(self._values)

    def __call__(self, item: int) -> _Value:
        """Return the value of an item."""
        value = self._values.get(item)
        if value is None:
            value = self._values[item] = self._make(item)
            self._bytes += _size(value)
            while self._bytes > self._most and len(self._values) > 1:
                self._bytes -= _size(self._values.popitem(last=False)[1])
        return value


def _size(value: object) -> int:
    """Return the size of a value in bytes: arrays, text, numbers, and sequences and dataclasses of them."""
    own = sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return max(own, value.nbytes)  # a view may be the only reference to its base
    if isinstance(value, list | tuple):
        return own + sum(map(_size, value))
    if is_dataclass(value):
        return own + sum(_size(getattr(value, field.name)) for field in fields(value))
    return own
