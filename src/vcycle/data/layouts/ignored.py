"""What a dataset's folder holds beside its videos: counted by reason, with one example each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts.files import VIDEOS, Kind, is_folder, printable, suffix_of
from vcycle.data.layouts.videos import VideoList

__all__ = ["Ignored", "ignored_in"]

_MOST = 2_000_000
"""Number of entries to look at; a folder with more is looked at in part."""
_MOST_SUFFIXES = 5
_BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """Entries of a folder that a dataset does not use, for one reason."""

    why: str
    """``hidden (name begins with a dot)``."""
    files: int
    """Number of entries."""
    example: str
    """The first of them by name, relative to the dataset's folder."""


class _Reasons:
    """Counts by reason."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self.suffixes: Counter[str] = Counter()

    def add(self, why: str, path: str) -> None:
        self._counts[why] += 1
        self._examples[why] = min(path, self._examples.get(why, path))

    def told(self, kind: Kind) -> list[Ignored]:
        """Return the reasons, most files first."""
        strange = self.suffixes.most_common(_MOST_SUFFIXES)
        named = ", ".join(f"{suffix or 'none'} {count:,}" for suffix, count in strange)
        more = ", …" if len(self.suffixes) > _MOST_SUFFIXES else ""
        words = {
            "hidden": "hidden: the name begins with a dot",
            "strange": f"not a {kind.name} by the suffix ({named}{more})",
            "empty": "empty folder",
            "unused": f"{kind.name} that no split has: not listed, or not directly in a class folder",
            "unread": "folder that cannot be read",
            "rest": f"not looked at: more than {_MOST:,} entries",
        }
        return [
            Ignored(why=words[why], files=count, example=printable(os.path.relpath(self._examples[why], self._root)))
            for why, count in sorted(self._counts.items(), key=lambda reason: (-reason[1], reason[0]))
        ]


def ignored_in(root: Path, lists: Collection[VideoList], *, kind: Kind = VIDEOS) -> list[Ignored]:
    """Count what a dataset's folder holds beside the videos of its splits. Memory grows by eight bytes per video.

    Args:
        root: The folder; links to folders are followed once each.
        lists: All splits.
        kind: What the dataset consists of.
    """
    top = os.path.abspath(root)
    used = _hashes(lists)
    sources = {os.path.abspath(str(videos.source)) for videos in lists if videos.source.is_file()}
    sources |= {os.path.join(os.path.dirname(source), "classes.txt") for source in sources}
    found = _Reasons(top)
    waiting, seen, left = [top], {os.path.realpath(top)}, _MOST
    while waiting:
        folder, empty = waiting.pop(), True
        if not left:
            found.add("rest", folder)
            break
        try:
            with os.scandir(folder) as entries:
                while batch := list(islice(entries, min(_BATCH, left))):
                    empty, left = False, left - len(batch)
                    mine = _among([hash(entry.path) for entry in batch], used)
                    others = [entry for entry, is_used in zip(batch, mine, strict=True) if not is_used]
                    below = _count([entry for entry in others if entry.path not in sources], kind, found)
                    for entry in below:
                        real = os.path.realpath(entry.path) if entry.is_symlink() else None
                        if real not in seen:
                            seen.update(() if real is None else (real,))
                            waiting.append(entry.path)
                if not left and next(entries, None) is not None:
                    found.add("rest", folder)
                    break
        except OSError:
            found.add("unread", folder)
            continue
        if empty:
            found.add("empty", folder)
    return found.told(kind)


def _count(entries: Iterable[os.DirEntry[str]], kind: Kind, found: _Reasons) -> list[os.DirEntry[str]]:
    """Count unused entries; return the folders among them, which are looked into."""
    below = []
    for entry in entries:
        if entry.name.startswith("."):
            found.add("hidden", entry.path)
        elif kind.holds(entry.name):
            found.add("unused", entry.path)
        elif is_folder(entry):
            below.append(entry)
        else:
            found.suffixes[suffix_of(entry.name)] += 1
            found.add("strange", entry.path)
    return below


def _hashes(lists: Iterable[VideoList]) -> NDArray[np.int64]:
    """Return hashes of the videos' absolute paths, sorted."""
    return np.unique(np.fromiter((hash(path) for videos in lists for path in videos.absolute_paths()), dtype=np.int64))


def _among(hashes: list[int], used: NDArray[np.int64]) -> list[bool]:
    """Return which hashes are in a sorted array."""
    if not len(used):
        return [False] * len(hashes)
    wanted = np.array(hashes, dtype=np.int64)
    places = np.minimum(np.searchsorted(used, wanted), len(used) - 1)
    return [bool(same) for same in used[places] == wanted]
