"""What was found out about the items asked for last: indexes, listings, times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Recent"]

_Value = TypeVar("_Value")


class Recent(Generic[_Value]):
    """Makes a value for an item on first use, and keeps those of a limited number of items; what raises is not kept.

    ``functools.lru_cache`` does not outlive pickling, as a dataset on its way to another process must.

    Example:
        >>> lengths = Recent(lambda item: "a" * item, keep=2)
        >>> [lengths(item) for item in (1, 2, 3)], len(lengths)
        (['a', 'aa', 'aaa'], 2)
    """

    def __init__(self, make: Callable[[int], _Value], *, keep: int) -> None:
        """Remember what ``make`` gives for up to ``keep`` items."""
        self._make = make
        self._keep = keep
        self._values: OrderedDict[int, _Value] = OrderedDict()

    def __len__(self) -> int:
        """Number of items kept."""
        return len(self._values)

    def __call__(self, item: int) -> _Value:
        """The value of an item."""
        value = self._values.get(item)
        if value is None:
            value = self._values[item] = self._make(item)
            if len(self._values) > self._keep:
                self._values.popitem(last=False)
        return value
