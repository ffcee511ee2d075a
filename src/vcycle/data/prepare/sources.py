"""The files that are to be prepared, each once, and the names under which they are kept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts import VideoList
from vcycle.data.stamp import Stamp, stamp_of

__all__ = ["Source", "Sources", "find_sources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file."""

    name: str
    """Split and name, without the suffix: its key in the journal and its place in the prepared folder."""

    path: str
    stamp: Stamp

    frame_rate: float | None
    """Pictures per second, where it is a folder of pictures."""

    @property
    def size(self) -> int:
        """Bytes; 0 if the file is not there."""
        return self.stamp.size


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Files to be prepared, sorted by name, and which of them each video of each split is."""

    files: tuple[Source, ...]

    videos: Mapping[str, VideoList]
    """Videos by split."""

    rows: Mapping[str, NDArray[np.int64]]
    """Number of each video's file, by split."""

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)


def find_sources(splits: Mapping[str, VideoList]) -> Sources:
    """List the files of the splits; a file that several videos of a split are cut from is listed once."""
    found: dict[str, tuple[str, float | None]] = {}
    names_of: dict[str, list[str]] = {}
    for split, videos in splits.items():
        full = [str(videos.path(item)) for item in range(len(videos))]
        relative = dict(zip(full, _relative_names(list(videos.paths), str(videos.root)), strict=True))
        name_of = {path: f"{split}/{name}" for path, name in _distinct(relative).items()}
        names_of[split] = [name_of[path] for path in full]
        found |= {name: (path, videos.frame_rate) for path, name in name_of.items()}
    files = tuple(
        Source(name=name, path=path, stamp=stamp_of(path), frame_rate=rate)
        for name, (path, rate) in sorted(found.items())
    )
    number = {file.name: row for row, file in enumerate(files)}
    rows = {split: np.array([number[name] for name in names], dtype=np.int64) for split, names in names_of.items()}
    return Sources(files=files, videos=dict(splits), rows=rows)


def _relative_names(paths: Sequence[str], root: str) -> list[str]:
    """Names below the root; what lies elsewhere is named by its whole path."""
    names = []
    for path in paths:
        inside = os.path.relpath(path, root) if os.path.isabs(path) else path
        if inside.startswith(".."):
            inside = path
        parts = PurePosixPath(os.path.normpath(inside)).parts
        names.append("/".join(part for part in parts if part not in ("/", "//", "..")))
    return names


def _distinct(relative: Mapping[str, str]) -> dict[str, str]:
    """Names without suffix, or with it (and then a number) where they would be the same."""
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
