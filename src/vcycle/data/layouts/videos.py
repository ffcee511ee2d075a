"""Array-backed video lists: ten million entries, shared by forked workers without a copy.

Every reader of a Python string or number writes its reference count: a forked worker that reads a tuple of a million
paths copies their memory pages, and so does every other worker. Bytes and arrays have one reference count each,
whatever their length. A video of a list takes the bytes of its path and 17 more.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from math import inf
from pathlib import Path
from typing import Any, overload

from vcycle.data.locations import Location, inside, is_url, joined
from vcycle.errors import DataError

__all__ = ["Strings", "VideoList"]

_BATCH = 4096
"""Number of strings or numbers that are converted at a time."""


class Strings(Sequence[str]):
    """A read-only sequence of strings, stored in one block of bytes.

    Example:
        >>> names = Strings(["a.mp4", "ä.mp4"])
        >>> len(names), names[1], names.index("a.mp4")
        (2, 'ä.mp4', 0)
    """

    __slots__ = ("_ends", "_text")

    def __init__(self, strings: Iterable[str] = ()) -> None:
        """Copy strings, a batch at a time; file names that are not UTF-8 are preserved."""
        text, ends = bytearray(), array("q", [0])
        source = iter(strings)
        while batch := list(islice(source, _BATCH)):
            joined = _encoded("\0".join(batch))
            plain = len(joined) == sum(map(len, batch)) + len(batch) - 1  # ASCII
            lengths = map(len, batch if plain else map(_encoded, batch))
            ends.extend(islice(accumulate((length + 1 for length in lengths), initial=len(text)), 1, None))
            text += joined
            text += b"\0"
        self._text, self._ends = text, ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, item: int) -> str: ...
    @overload
    def __getitem__(self, item: slice) -> tuple[str, ...]: ...
    def __getitem__(self, item: int | slice) -> str | tuple[str, ...]:
        if isinstance(item, slice):
            return tuple(self[number] for number in range(*item.indices(len(self))))
        number = item + len(self) if item < 0 else item
        if not 0 <= number < len(self):
            raise IndexError(f"string {item} of {len(self)}")
        return self._decoded(number, number + 1)

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _BATCH):
            last = min(first + _BATCH, len(self))
            batch = self._decoded(first, last).split("\0")
            # A string may have a NUL in it.
            yield from batch if len(batch) == last - first else self[first:last]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        return self._text == other._text and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3])) + (", ..." if len(self) > 3 else "")
        return f"<{len(self)} strings: {shown}>"

    @property
    def encoded(self) -> memoryview:
        """The bytes of all strings, each followed by a NUL."""
        return memoryview(self._text).toreadonly()

    def _decoded(self, first: int, last: int) -> str:
        """Return some consecutive strings, with NULs between them."""
        return self._text[self._ends[first] : self._ends[last] - 1].decode("utf-8", "surrogateescape")


def _encoded(string: str) -> bytes:
    return string.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, kw_only=True)
class VideoList:
    """Videos and their classes, in a fixed order. Any sequences are accepted; they are converted to arrays."""

    root: Location
    """Folder for relative paths."""

    paths: Sequence[str]
    """One per video, relative to ``root``, absolute, or a URL."""

    labels: Sequence[int] = field(repr=False)
    """Class index of each video; for a multi-label set, the concatenated labels of all videos."""

    classes: tuple[str, ...]

    source: Location
    """The list file or folder that was read."""

    lines: Sequence[int] = field(default=(), repr=False)
    """Line of each video in the list file, from 1; empty for folders."""

    label_starts: Sequence[int] = field(default=(), repr=False)
    """Multi-label sets only: offset of each video's labels in ``labels``, and the end of the last."""

    label_spans: Sequence[float] = field(default=(), repr=False)
    """Start and end in seconds of each of ``labels``, two numbers per label; empty if unknown."""

    spans: Sequence[float] = field(default=(), repr=False)
    """Start and end in seconds of the part of each video to use, two numbers per video; empty if all are used in
    full."""

    frame_rate: float | None = None
    """Frames per second of videos that are folders of pictures, or single pictures; None for video files."""

    missing: int = 0
    """Number of videos in ``source`` that are left out because they have no file."""

    dead: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Videos in ``source`` that are left out because they cannot be opened: the cause by path."""

    beside: str = ""
    """Description of unused files in class folders; empty if there are none worth mentioning."""

    def __post_init__(self) -> None:
        if not isinstance(self.paths, Strings):
            object.__setattr__(self, "paths", Strings(self.paths))
        for name, kind in _ARRAYS.items():
            values = getattr(self, name)
            if not (isinstance(values, array) and values.typecode == kind):
                object.__setattr__(self, name, array(kind, values))
        videos, labels = len(self.paths), len(self.labels)
        ends = self.label_starts[-1] if self.label_starts else videos
        lengths = {
            "labels": (labels, (ends,)),
            "label_starts": (len(self.label_starts), (0, videos + 1)),
            "lines": (len(self.lines), (0, videos)),
            "label_spans": (len(self.label_spans), (0, 2 * labels)),
            "spans": (len(self.spans), (0, 2 * videos)),
        }
        for name, (length, accepted) in lengths.items():
            if length not in accepted:
                raise DataError(f"{self.source}: {length} {name} for {videos} videos: must be {accepted[-1]}")
        if labels and not 0 <= (low := min(self.labels)) <= (high := max(self.labels)) < len(self.classes):
            wrong = low if low < 0 else high
            raise DataError(f"{self.source}: label {wrong}: must be from 0 to {len(self.classes) - 1}")

    def __len__(self) -> int:
        """Return the number of videos."""
        return len(self.paths)

    @property
    def multi_label(self) -> bool:
        """Whether a video may have any number of labels, rather than one."""
        return len(self.label_starts) > 0

    def path(self, item: int) -> Location:
        """Return the full path of one video."""
        return joined(self.root, self.paths[item])

    def absolute_paths(self) -> Iterator[str]:
        """Yield what identifies each file: its absolute path without ``..``, or its URL. No file is looked at."""
        root = os.path.abspath(self.root) if isinstance(self.root, Path) else None
        for item, path in enumerate(self.paths):
            plain = not (path.startswith("/") or "//" in path or "./" in path)  # most, at half the time
            if root is None or is_url(path):
                yield str(self.path(item))
            else:
                yield f"{root}/{path}" if plain else os.path.normpath(os.path.join(root, path))

    def labels_of(self, item: int) -> tuple[int, ...]:
        """Return the labels of one video: one, or any number for a multi-label set, including repeats."""
        if not self.multi_label:
            return (self.labels[item],)
        return tuple(self.labels[self.label_starts[item] : self.label_starts[item + 1]])

    def label_spans_of(self, item: int) -> tuple[tuple[float, float], ...]:
        """Return the start and end in seconds of each of ``labels_of``; 0 and infinity if unknown."""
        first, last = self._labels_at(item)
        return tuple(_span(self.label_spans, label) for label in range(first, last))

    def labels_within(self, item: int, start: float, end: float) -> tuple[int, ...]:
        """Return the labels of one video that hold at some time between two, in seconds; all if times are unknown."""
        named = zip(self.labels_of(item), self.label_spans_of(item), strict=True)
        return tuple(label for label, (first, last) in named if first <= end and start <= last)

    def span(self, item: int) -> tuple[float, float]:
        """Return the start and end in seconds of the part of one video to use; 0 and infinity for all of it."""
        return _span(self.spans, item)

    def without(self, dead: Mapping[str, str]) -> VideoList:
        """Return the list without videos that cannot be opened.

        Args:
            dead: Causes, by path in the list.

        Raises:
            DataError: If no video is left.
        """
        kept = array("q", (item for item, path in enumerate(self.paths) if path not in dead))
        if not kept:
            raise DataError(f"{self.source}: none of its {len(self):,} videos can be opened")
        return replace(self.part(kept), dead={**self.dead, **dead})

    def part(self, items: Sequence[int]) -> VideoList:
        """Return the list of these videos alone, in this order."""
        labels, label_spans, label_starts = array("i"), array("d"), array("q", [0])
        for item in items:
            first, last = self._labels_at(item)
            labels.extend(self.labels[first:last])
            label_spans.extend(self.label_spans[2 * first : 2 * last])
            label_starts.append(len(labels))
        return replace(
            self,
            paths=Strings(self.paths[item] for item in items),
            labels=labels,
            lines=array("i", (self.lines[item] for item in items)) if self.lines else (),
            label_starts=label_starts if self.multi_label else (),
            label_spans=label_spans,
            spans=array("d", (value for item in items for value in self.spans[2 * item : 2 * item + 2])),
        )

    def _labels_at(self, item: int) -> tuple[int, int]:
        """Return the range of one video's labels in ``labels``."""
        return (self.label_starts[item], self.label_starts[item + 1]) if self.multi_label else (item, item + 1)

    def refuse_outsiders(self) -> None:
        """Refuse paths that lead out of ``root``: absolute ones to elsewhere, and those with too many ``..``.

        Links are followed: whoever can create one in the folder already controls its content.

        Raises:
            DataError: names the first, and where it is listed.
        """
        for item, path in enumerate(self.paths):
            if (path.startswith("/") or ".." in path or is_url(path)) and not inside(self.root, path):
                raise DataError(f"{self.origin(item)}: {path} leads out of data.root {self.root}")

    def digest(self) -> dict[str, Any]:
        """Return what identifies the videos wherever they are stored: their number, and hashes of names and labels."""
        assert isinstance(self.paths, Strings)
        names, labels = hashlib.sha256(self.paths.encoded), hashlib.sha256(json.dumps(self.classes).encode())
        for values in (self.labels, self.label_starts, self.label_spans, self.spans):
            labels.update(f"{len(values)}:".encode())
            for first in range(0, len(values), _BATCH):
                labels.update(array("d", values[first : first + _BATCH]).tobytes())
        return {"videos": len(self), "names": names.hexdigest()[:16], "labels": labels.hexdigest()[:16]}

    def origin(self, item: int) -> str:
        """Return where one video is listed, for messages: the list's line, or the path itself."""
        return f"{self.source}, line {self.lines[item]}" if self.lines else str(self.path(item))


_ARRAYS = {"labels": "i", "lines": "i", "label_starts": "q", "label_spans": "d", "spans": "d"}


def _span(spans: Sequence[float], number: int) -> tuple[float, float]:
    return (spans[2 * number], spans[2 * number + 1]) if len(spans) else (0.0, inf)
