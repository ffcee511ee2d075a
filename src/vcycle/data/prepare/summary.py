"""A dataset in numbers: counted file by file, of which only a few numbers each stay in memory."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts.files import printable
from vcycle.data.layouts.ignored import Ignored
from vcycle.data.layouts.videos import VideoList

__all__ = ["Classes", "Duplicates", "FileFacts", "NextStep", "Spread", "Summary", "Tally", "content_hash"]

_MOST_KINDS = 10_000
"""Maximum number of different sizes, rates and codecs to count."""
_ENDS = 1 << 16
"""Bytes at the beginning and at the end of a file by which its content is recognised."""


class FileFacts(NamedTuple):
    """What one file is."""

    frames: int
    seconds: float
    height: int
    width: int
    codec: str
    """The codec, or the suffix of pictures; empty if unknown."""
    keyframe_seconds: float
    """Longest time between frames that can be decoded without others, in seconds; infinite if a file can only be read
    from its start, 0 if each frame can be read alone."""
    content: int = 0
    """From ``content_hash``; 0 if unknown."""
    fault: str = ""
    """What is damaged, in words."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Distribution of a value over files."""

    min: float
    median: float
    max: float
    total: float


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes of the split that is trained on."""

    number: int
    largest: str
    most: int
    """Videos of the largest class."""
    smallest: str
    """The smallest class that has videos."""
    least: int
    without: int
    """Number of classes without videos."""

    @property
    def imbalance(self) -> float:
        """How many times as many videos the largest class has as the smallest."""
        return self.most / self.least if self.least else inf


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Files with the same size, beginning and end, of which a split has one and another split, or the same, another."""

    splits: tuple[str, str]
    files: int
    """Number of files of the second split that the first has too."""
    example: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """A command to run next."""

    command: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A dataset in numbers. Files that cannot be read count in ``splits`` and ``classes`` alone."""

    splits: Mapping[str, int]
    """Number of videos by split."""
    classes: Classes | None
    """None for data without classes."""
    frames: Spread | None
    """Frames per file; None if no file can be read."""
    seconds: Spread | None
    """Length of a file; None for pictures."""
    sizes: Mapping[str, int]
    """Files by ``WIDTHxHEIGHT`` as displayed, most files first."""
    frame_rates: Mapping[str, int]
    """Files by mean frames per second, to two decimals, most files first."""
    codecs: Mapping[str, int]
    """Files by codec, or by suffix of their pictures, most files first."""
    keyframe_seconds: Spread | None
    """Longest time between key frames of a file that can be read from each; None if there is none."""
    from_start: int
    """Number of files that can only be read from their start."""
    bytes: int
    item: str = "video"
    """What is counted in ``splits``."""
    ignored: Sequence[Ignored] = ()
    duplicates: Sequence[Duplicates] = ()
    next: Sequence[NextStep] = ()

    @property
    def short_side(self) -> int:
        """Median of the files' short sides in pixels; 0 if unknown."""
        sides = sorted((min(map(int, size.split("x"))), files) for size, files in self.sizes.items() if size != _OTHER)
        half = sum(files for _, files in sides) / 2
        for side, files in sides:
            half -= files
            if half <= 0:
                return side
        return 0


_OTHER = "other"


class _Kinds(Counter[str]):
    """Counts kinds, up to a number of different ones; the rest count as one."""

    def add(self, kind: str) -> None:
        """Count one."""
        self[kind if kind in self or len(self) < _MOST_KINDS else _OTHER] += 1

    def ordered(self) -> dict[str, int]:
        """Return the counts, most files first."""
        return dict(sorted(self.items(), key=lambda item: (-item[1], item[0])))


@dataclass
class Tally:
    """Counts files as they come."""

    splits: Mapping[str, int]
    classes: Classes | None = None
    bytes: int = 0
    _frames: array[float] = field(default_factory=lambda: array("f"))
    _seconds: array[float] = field(default_factory=lambda: array("f"))
    _keyframe_seconds: array[float] = field(default_factory=lambda: array("f"))
    _sizes: _Kinds = field(default_factory=_Kinds)
    _rates: _Kinds = field(default_factory=_Kinds)
    _codecs: _Kinds = field(default_factory=_Kinds)
    _from_start: int = 0

    @classmethod
    def of(cls, lists: Mapping[str, VideoList]) -> Tally:
        """Start with the videos of each split, none of which has been read."""
        splits = {split: len(videos) for split, videos in lists.items()}
        first = next(iter(lists.values()), None)
        return cls(splits=splits, classes=None if first is None else _classes_of(first))

    def add(self, facts: FileFacts) -> None:
        """Count a file that can be read."""
        self._frames.append(facts.frames)
        self._sizes.add(f"{facts.width}x{facts.height}")
        if facts.codec:
            self._codecs.add(facts.codec)
        if facts.seconds > 0:
            self._seconds.append(facts.seconds)
            self._rates.add(f"{facts.frames / facts.seconds:.2f}".rstrip("0").rstrip("."))
        if facts.keyframe_seconds == inf:
            self._from_start += 1
        elif facts.keyframe_seconds > 0:
            self._keyframe_seconds.append(facts.keyframe_seconds)

    def summary(self, duplicates: Sequence[Duplicates] = ()) -> Summary:
        """Return the numbers of all files so far."""
        return Summary(
            splits=self.splits,
            classes=self.classes,
            frames=_spread(self._frames),
            seconds=_spread(self._seconds),
            sizes=self._sizes.ordered(),
            frame_rates=self._rates.ordered(),
            codecs=self._codecs.ordered(),
            keyframe_seconds=_spread(self._keyframe_seconds),
            from_start=self._from_start,
            bytes=self.bytes,
            duplicates=duplicates,
        )


def _spread(values: array[float]) -> Spread | None:
    if not values:
        return None
    numbers = np.frombuffer(values, dtype=np.float32)
    found = (numbers.min(), np.median(numbers), numbers.max(), numbers.sum(dtype=np.float64))
    least, median, most, total = (float(value) for value in found)
    return Spread(min=least, median=median, max=most, total=total)


def _classes_of(videos: VideoList) -> Classes:
    """Return the sizes of the classes; a video of several labels counts in each."""
    counts = np.bincount(np.asarray(videos.labels, dtype=np.int64), minlength=len(videos.classes))
    held = np.flatnonzero(counts)
    if not len(held):
        return Classes(number=len(counts), largest="", most=0, smallest="", least=0, without=len(counts))
    most, least = int(held[np.argmax(counts[held])]), int(held[np.argmin(counts[held])])
    return Classes(
        number=len(counts),
        largest=videos.classes[most],
        most=int(counts[most]),
        smallest=videos.classes[least],
        least=int(counts[least]),
        without=len(counts) - len(held),
    )


def content_hash(path: str) -> int:
    """Return a hash of a file's size, beginning and end, which has 63 bits; 0 if it cannot be read."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.blake2b(file.read(_ENDS), digest_size=8)
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _ENDS))
            digest.update(file.read(_ENDS) + size.to_bytes(8))
    except OSError:
        return 0
    return int.from_bytes(digest.digest()) >> 1


def duplicates_among(
    contents: NDArray[np.int64], splits: Sequence[str], split_of: NDArray[np.int8], name: Callable[[int], str]
) -> list[Duplicates]:
    """Count files with the same content, by the pair of splits that have them.

    Args:
        contents: Hash of each file; 0 if unknown.
        splits: The splits.
        split_of: Index of each file's split.
        name: Returns the path of a file.
    """
    order = np.argsort(contents, kind="stable")  # equal ones in the order of splits
    order = order[contents[order] != 0]
    same = np.flatnonzero(contents[order[1:]] == contents[order[:-1]]) + 1
    first = order[np.searchsorted(contents[order], contents[order[same]])]
    found: dict[tuple[str, str], Duplicates] = {}
    for one, other in zip(first.tolist(), order[same].tolist(), strict=True):
        pair = splits[split_of[one]], splits[split_of[other]]
        if pair in found:
            found[pair] = replace(found[pair], files=found[pair].files + 1)
        else:
            example = printable(name(one)), printable(name(other))
            found[pair] = Duplicates(splits=pair, files=1, example=example)
    return sorted(found.values(), key=lambda pair: (pair.splits[0] == pair.splits[1], -pair.files))
