"""Record of a prepared video: a line of the journal, and later a row of the index."""

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
    """A video stored at one level."""

    size: tuple[int, int]
    """Height and width in pixels."""

    bytes: int
    checksum: str
    """BLAKE2b checksum in hexadecimal."""

    offset: int = 0
    """Offset in the array; 0 for a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A prepared video."""

    frames: int
    whole: int
    """Number of frames of the source; more than ``frames`` for a sample."""

    displayed: tuple[int, int]
    """Displayed height and width of the source."""

    duration: float
    """Duration of the source in seconds."""

    tolerance: float
    """See ``VideoInfo.tolerance``."""

    tick: float
    """Seconds per tick of the time stamps."""

    pts: Sequence[Sequence[int]]
    """Differences of the time stamps, run-length encoded: pairs of a difference and a count."""

    filled: Sequence[Sequence[int]]
    """Frames that could not be decoded and repeat the one before: pairs of a number and a count."""

    levels: Sequence[Stored | None]
    """By level; None if the level below is as large."""

    incomplete: str = ""
    """See ``VideoInfo.incomplete``."""

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON data."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "levels"}
        levels = [s and {"size": s.size, "bytes": s.bytes, "sum": s.checksum, "at": s.offset} for s in self.levels]
        return data | {"levels": levels}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Record":
        """Create from the data of ``to_json``.

        Raises:
            KeyError, TypeError: If the data is malformed.
        """
        levels = [
            s and Stored(size=(s["size"][0], s["size"][1]), bytes=s["bytes"], checksum=s["sum"], offset=s["at"])
            for s in data["levels"]
        ]
        displayed = (data["displayed"][0], data["displayed"][1])
        return cls(**{**data, "displayed": displayed, "levels": levels})


def run_lengths(values: NDArray[np.int64]) -> list[list[int]]:
    """Run-length encode values: pairs of a value and a count.

    Example:
        >>> run_lengths(np.array([5, 5, 7]))
        [[5, 2], [7, 1]]
    """
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1)) if len(values) else np.empty(0, dtype=np.int64)
    counts = np.diff(starts, append=len(values))
    return [[int(value), int(count)] for value, count in zip(values[starts], counts, strict=True)]


def new_digest() -> hashlib.blake2b:
    """Create an empty checksum."""
    return hashlib.blake2b(digest_size=CHECKSUM_BYTES)


def checksum(path: str, offset: int = 0, count: int | None = None) -> str:
    """Return the checksum of a file, or of a part of it.

    Raises:
        OSError: If the file cannot be read.
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
