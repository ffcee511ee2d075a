"""What was found out about the items asked for last: indexes, listings, times."""

from __future__ import annotations

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
    """Makes a value for an item on first use, and keeps those made last up to a size; what raises is not kept.

    ``functools.lru_cache`` counts values, of which one may be thousands of times another's size, and does not outlive
    pickling, as a dataset on its way to another process must.

    Example:
        >>> lengths = Recent(lambda item: "a" * item, most_bytes=110)
        >>> [lengths(item) for item in (1, 2, 3)], len(lengths)
        (['a', 'aa', 'aaa'], 2)
    """

    def __init__(self, make: Callable[[int], _Value], *, most_bytes: int = _MOST_BYTES) -> None:
        """Remember what ``make`` gives, in up to ``most_bytes``; the value made last always."""
        self._make = make
        self._most = most_bytes
        self._bytes = 0
        self._values: OrderedDict[int, _Value] = OrderedDict()

    def __len__(self) -> int:
        """Number of items kept."""
        return len(self._values)

    def __call__(self, item: int) -> _Value:
        """The value of an item."""
        value = self._values.get(item)
        if value is None:
            value = self._values[item] = self._make(item)
            self._bytes += _size(value)
            while self._bytes > self._most and len(self._values) > 1:
                self._bytes -= _size(self._values.popitem(last=False)[1])
        return value


def _size(value: object) -> int:
    """Bytes of a value: arrays, text, numbers, and what sequences and dataclasses have of them."""
    own = sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return max(own, value.nbytes)  # one that shows another's memory may be all that keeps it
    if isinstance(value, list | tuple):
        return own + sum(map(_size, value))
    if is_dataclass(value):
        return own + sum(_size(getattr(value, field.name)) for field in fields(value))
    return own
