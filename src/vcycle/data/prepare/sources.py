"""Source files of a preparation, each listed once, and their names in the output."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts import VideoList
from vcycle.data.locations import is_url
from vcycle.data.stamp import Stamp, stamp_of

__all__ = ["AT_ONCE", "Source", "Sources", "find_sources", "look_at"]

AT_ONCE = 64
"""Requests to a store at a time, of which most wait."""


@dataclass(slots=True, kw_only=True)
class Source:
    """A source file."""

    name: str
    """Split and name, without suffix: its key in the journal and its place in the prepared folder."""

    path: str

    frame_rate: float | None
    """Pictures per second, for a folder of pictures."""

    _stamp: Stamp | None = None

    @property
    def stamp(self) -> Stamp:
        """Its stamp, when it is first asked for: of a part of a large set, only the part's files are looked at."""
        if self._stamp is None:
            self._stamp = stamp_of(self.path)
        return self._stamp

    @property
    def size(self) -> int:
        """Size in bytes; 0 if the file is missing."""
        return self.stamp.size


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Source files, sorted by name, and which of them belongs to each video of each split."""

    files: tuple[Source, ...]

    videos: Mapping[str, VideoList]
    """Videos by split."""

    rows: Mapping[str, NDArray[np.int64]]
    """Index of each video's file, by split."""


def find_sources(splits: Mapping[str, VideoList]) -> Sources:
    """List the files of the splits; a file that several videos of a split share is listed once."""
    found: dict[str, tuple[str, float | None]] = {}
    names_of: dict[str, list[str]] = {}
    for split, videos in splits.items():
        full = [str(videos.path(item)) for item in range(len(videos))]
        relative = dict(zip(full, _relative_names(list(videos.paths), str(videos.root)), strict=True))
        name_of = {path: f"{split}/{name}" for path, name in _distinct(relative).items()}
        names_of[split] = [name_of[path] for path in full]
        found |= {name: (path, videos.frame_rate) for path, name in name_of.items()}
    files = tuple(Source(name=name, path=path, frame_rate=rate) for name, (path, rate) in sorted(found.items()))
    number = {file.name: row for row, file in enumerate(files)}
    rows = {split: np.array([number[name] for name in names], dtype=np.int64) for split, names in names_of.items()}
    return Sources(files=files, videos=dict(splits), rows=rows)


def look_at(files: Sequence[Source]) -> None:
    """Get the stamps of those files that are at URLs, many at a time.

    Raises:
        NotInstalledError: If a package that opens a URL is missing.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda file: file.stamp, [file for file in files if is_url(file.path)]))


def _relative_names(paths: Sequence[str], root: str) -> list[str]:
    """Return names relative to the root; files outside it are named by their whole path."""
    names = []
    for path in paths:
        inside = os.path.relpath(path, root) if os.path.isabs(path) else path
        if is_url(path):
            inside = path.removeprefix(f"{root.rstrip('/')}/").replace("://", "/").replace("::", "/")
        if inside.startswith(".."):
            inside = path
        parts = PurePosixPath(os.path.normpath(inside)).parts
        names.append("/".join(part for part in parts if part not in ("/", "//", "..")))
    return names


def _distinct(relative: Mapping[str, str]) -> dict[str, str]:
    """Return unique names without suffix; in a conflict with the suffix, and then with a number."""
    bare = {path: str(PurePosixPath(name).with_suffix("")) for path, name in relative.items()}
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
