"""What is known of a prepared video: a line of the journal, and later a row of the index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHECKSUM_BYTES", "Record", "Stored", "checksum", "new_digest", "run_lengths"]

CHECKSUM_BYTES = 16

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A video in one level."""

    size: tuple[int, int]
    """Height and width in pixels."""

    bytes: int
    checksum: str
    """BLAKE2b of the bytes, in hexadecimal."""

    offset: int = 0
    """Where they begin in the array; 0 for a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A video that has been written."""

    frames: int
    whole: int
    """Frames of the source: more than ``frames`` in a sample."""

    displayed: tuple[int, int]
    """Height and width of the source as it is displayed."""

    duration: float
    """Seconds of the source."""

    tolerance: float
    """See ``VideoInfo.tolerance``."""

    tick: float
    """Seconds in one unit of the time stamps."""

    pts: Sequence[Sequence[int]]
    """Distances of the time stamps: pairs of a distance and how often in a row."""

    filled: Sequence[Sequence[int]]
    """Frames that could not be decoded and show the one before: pairs of a number and a count."""

    levels: Sequence[Stored | None]
    """By level; none where the level below is as large."""

    incomplete: str = ""
    """See ``VideoInfo.incomplete``."""

    def to_json(self) -> dict[str, Any]:
        """As data."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "levels"}
        levels = [s and {"size": s.size, "bytes": s.bytes, "sum": s.checksum, "at": s.offset} for s in self.levels]
        return data | {"levels": levels}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """From data that ``to_json`` gave.

        Raises:
            KeyError, TypeError: If it is not.
        """
        levels = [
            s and Stored(size=(s["size"][0], s["size"][1]), bytes=s["bytes"], checksum=s["sum"], offset=s["at"])
            for s in data["levels"]
        ]
        displayed = (data["displayed"][0], data["displayed"][1])
        return cls(**{**data, "displayed": displayed, "levels": levels})


def run_lengths(values: NDArray[np.int64]) -> list[list[int]]:
    """Values as pairs of one and how often it comes in a row.

    Example:
        >>> run_lengths(np.array([5, 5, 7]))
        [[5, 2], [7, 1]]
    """
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1)) if len(values) else np.empty(0, dtype=np.int64)
    counts = np.diff(starts, append=len(values))
    return [[int(value), int(count)] for value, count in zip(values[starts], counts, strict=True)]


def new_digest() -> hashlib.blake2b:
    """An empty checksum."""
    return hashlib.blake2b(digest_size=CHECKSUM_BYTES)


def checksum(path: str, offset: int = 0, count: int | None = None) -> str:
    """Checksum of a file, or of a part of it.

    Raises:
        OSError: If it cannot be read.
    """
    digest = new_digest()
    with open(path, "rb") as file:
        file.seek(offset)
        while count is None or count > 0:
            block = file.read(_BLOCK if count is None else min(_BLOCK, count))
            if not block:
                break
            digest.update(block)
            count = None if count is None else count - len(block)
    return digest.hexdigest()
