"""Source files of a preparation, each listed once, and their names in the output."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from typing import overload

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts import Strings, VideoList
from vcycle.data.locations import is_url, request_each
from vcycle.data.stamp import Stamp, stamp_of

__all__ = ["Source", "Sources", "find_sources", "look_at"]

_RUN = 500_000
"""Number of names that are sorted at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source file."""

    name: str
    """Split and name, without suffix: its key in the journal and its place in the prepared folder."""

    path: str

    frame_rate: float | None
    """Pictures per second, for a folder of pictures."""

    _seen: NDArray[np.int64] = field(default_factory=lambda: np.full(2, -1, dtype=np.int64), compare=False, repr=False)
    """Its stamp as numbers; negative until it is looked at."""

    @property
    def stamp(self) -> Stamp:
        """Its stamp, when it is first asked for: of a part of a large set, only the part's files are looked at."""
        if self._seen[0] < 0:
            self._seen[:] = stamp_of(self.path)
        return Stamp(*self._seen.tolist())

    @property
    def size(self) -> int:
        """Size in bytes; 0 if the file is missing."""
        return self.stamp.size


class Files(Sequence[Source]):
    """Source files, sorted by name. Their stamps are remembered as numbers."""

    def __init__(self, names: Strings, places: Sequence[tuple[VideoList, NDArray[np.int64]]]) -> None:
        """Take the files of some lists.

        Args:
            names: Names of the files, list after list.
            places: Each list, and the item of each of its files.
        """
        self._names, self._places = names, places
        self._order = _order(names)
        self._first = np.cumsum([0, *(len(items) for _, items in places)])
        self._stamps = np.full((len(names), 2), -1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, row: int) -> Source: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[Source, ...]: ...
    def __getitem__(self, row: int | slice) -> Source | tuple[Source, ...]:
        if isinstance(row, slice):
            return tuple(self[number] for number in range(*row.indices(len(self))))
        number = int(self._order[row])
        place = int(np.searchsorted(self._first, number, side="right")) - 1
        videos, items = self._places[place]
        path = str(videos.path(int(items[number - self._first[place]])))
        return Source(name=self._names[number], path=path, frame_rate=videos.frame_rate, _seen=self._stamps[number])

    def rows(self) -> list[NDArray[np.int64]]:
        """Return the rows of the files of each list."""
        found = np.empty(len(self), dtype=np.int64)
        found[self._order] = np.arange(len(self))
        return np.split(found, self._first[1:-1])


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Source files, sorted by name, and which of them belongs to each video of each split."""

    files: Sequence[Source]

    videos: Mapping[str, VideoList]
    """Videos by split."""

    rows: Mapping[str, NDArray[np.int64]]
    """Index of each video's file, by split."""


def find_sources(splits: Mapping[str, VideoList]) -> Sources:
    """List the files of the splits; a file that several videos of a split share is listed once."""
    found = [_names(split, videos) for split, videos in splits.items()]
    files = Files(
        Strings(chain.from_iterable(names for names, _, _ in found)),
        [(videos, items) for videos, (_, items, _) in zip(splits.values(), found, strict=True)],
    )
    rows = {split: own[numbers] for split, own, (_, _, numbers) in zip(splits, files.rows(), found, strict=True)}
    return Sources(files=files, videos=dict(splits), rows=rows)


def look_at(files: Sequence[Source]) -> None:
    """Get the stamps of those files that are at URLs, many at a time.

    Raises:
        NotInstalledError: If a package that opens a URL is missing.
    """
    request_each(lambda file: file.stamp, (file for file in files if is_url(file.path)))


def _names(split: str, videos: VideoList) -> tuple[Strings, NDArray[np.int64], NDArray[np.int64]]:
    """Return the names of a split's files, the first video of each, and the number of each video's file."""
    root = str(videos.root)
    bare = Strings(f"{split}/{_bare(name)}" for name in _relative_names(videos.paths, root))
    every = np.arange(len(videos), dtype=np.int64)
    hashes = np.fromiter(map(hash, bare), dtype=np.int64, count=len(videos))
    if len(np.unique(hashes)) == len(videos):  # as in most sets; what follows takes a kilobyte per video
        return bare, every, every
    full = [str(videos.path(item)) for item in range(len(videos))]
    name_of = _distinct(dict(zip(full, _relative_names(videos.paths, root), strict=True)))
    first = {path: item for item, path in reversed(list(enumerate(full)))}
    number = {path: number for number, path in enumerate(name_of)}
    names = Strings(f"{split}/{name}" for name in name_of.values())
    items = np.array([first[path] for path in name_of], dtype=np.int64)
    return names, items, np.array([number[path] for path in full], dtype=np.int64)


def _order(names: Strings) -> NDArray[np.int64]:
    """Return the numbers of names in sorted order; not all names are in memory as strings at once."""
    runs = [
        array("q", sorted(range(first, min(first + _RUN, len(names))), key=names.__getitem__))
        for first in range(0, len(names), _RUN)
    ]
    return np.fromiter(merge(*runs, key=names.__getitem__), dtype=np.int64, count=len(names))


def _relative_names(paths: Sequence[str], root: str) -> Iterator[str]:
    """Yield names relative to the root; files outside it are named by their whole path."""
    for path in paths:
        inside = os.path.relpath(path, root) if os.path.isabs(path) else path
        if is_url(path):
            inside = path.removeprefix(f"{root.rstrip('/')}/").replace("://", "/").replace("::", "/")
        if inside.startswith(".."):
            inside = path
        yield "/".join(part for part in os.path.normpath(inside).split("/") if part not in ("", ".", ".."))


def _bare(name: str) -> str:
    """Return a name without its suffix."""
    stem, _, suffix = name.rpartition(".")
    return stem if stem and suffix and not stem.endswith("/") and "/" not in suffix else name


def _distinct(relative: Mapping[str, str]) -> dict[str, str]:
    """Return unique names without suffix; in a conflict with the suffix, and then with a number."""
    bare = {path: _bare(name) for path, name in relative.items()}
    count = Counter(bare.values())
    found: dict[str, str] = {}
    taken: set[str] = set()
    for path in sorted(relative, key=lambda path: (relative[path], path)):
        wanted = bare[path] if count[bare[path]] == 1 else relative[path]
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}~{number}", number + 1
        taken.add(name)
        found[path] = name
    return found
