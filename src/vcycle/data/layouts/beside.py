"""Reports files in class folders that are not used, so that none is ignored silently."""

from __future__ import annotations

import os

from vcycle.data.layouts.files import VIDEOS, Kind, is_folder, printable, suffix_of
from vcycle.data.locations import Location, Url
from vcycle.errors import DataError

__all__ = ["Beside"]

_COMPANIONS = frozenset(
    f".{name}"
    for name in (
        *("ass", "cfg", "csv", "htm", "html", "json", "jsonl", "log", "md", "nfo", "pdf", "srt", "sub", "tsv", "txt"),
        *("url", "vtt", "xml", "yaml", "yml"),
        *("bmp", "db", "ini", "jpeg", "jpg", "png", "tif", "tiff", "webp"),
        *("aac", "flac", "m4a", "mp3", "ogg", "opus", "wav"),
        *("h5", "md5", "npy", "npz", "pickle", "pkl", "pt", "py", "sha256"),
    )
)
"""Suffixes of files commonly stored beside videos; they are ignored silently."""
_DEPTH = 3
"""Maximum depth of nested folders to search inside a class folder."""
_MOST = 100_000
"""Maximum number of names to look at there: a class folder may have a folder of pictures for each video."""


class Beside:
    """Collects unused files while the class folders of one folder are read, each once.

    Entries without a video's name are classified from the folder listing alone, without further system calls.
    """

    def __init__(self, root: Location, kind: Kind = VIDEOS, *, frames: bool = False) -> None:
        """Start with a folder of class folders; with ``frames``, a folder in one is a video, too."""
        self.root = root
        self._frames = frames
        self.kind = kind
        self.outside: list[str] = []
        """Files of the kind outside class folders."""
        self._others: list[str] = []
        self._deeper: list[str] = []
        self._left = _MOST

    def files_in(self, name: str) -> list[str]:
        """Return the names of the kind in a class folder, sorted; records everything else.

        Raises:
            DataError: If the folder cannot be read.
        """
        folder = self.root / name
        try:
            names, below = _listed(folder, self.kind)
        except OSError as error:
            raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
        for inner in () if self._frames else below:
            self._look(f"{name}/{inner}", _DEPTH)
        strange = (other for other in names if not self.kind.holds(other))
        self._others += [f"{name}/{other}" for other in strange if suffix_of(other) not in _COMPANIONS]
        return sorted([*self.kind.among(names), *below]) if self._frames else self.kind.among(names)

    def told(self) -> str:
        """Describe the unused files in one line; empty if there are none worth mentioning."""
        parts = []
        one_of = self.kind.name
        if others := len(self._others):
            many, one = f"files in class folders are not {one_of}s", f"file in a class folder is not a {one_of}"
            parts.append(f"{others:,} {many if others > 1 else one}, such as {self._others[0]}")
        if deeper := len(self._deeper):
            count = f"{deeper:,}" if self._left > 0 else f"at least {deeper:,}"
            ignored = f"{one_of}s in nested folders are" if deeper > 1 else f"{one_of} in a nested folder is"
            parts.append(f"{count} {ignored} ignored, such as {self._deeper[0]}")
        if outside := len(self.outside):
            ignored = f"{one_of}s outside class folders are" if outside > 1 else f"{one_of} outside class folders is"
            parts.append(f"{outside:,} {ignored} ignored, such as {self.outside[0]}")
        return printable("; ".join(parts))

    def _look(self, path: str, depth: int) -> None:
        if self._left <= 0:
            return
        try:
            names, below = _listed(self.root / path, self.kind)
        except OSError:  # only reported, not trained on
            return
        self._left -= len(names) + len(below)
        self._deeper += [f"{path}/{name}" for name in self.kind.among(names)]
        if depth > 1:
            for name in below:
                self._look(f"{path}/{name}", depth - 1)


def _listed(folder: Location, kind: Kind) -> tuple[list[str], list[str]]:
    """Return the visible names in a folder, sorted: files and everything of the kind by its name, and folders."""
    names, below = list[str](), list[str]()
    if isinstance(folder, Url):
        for name, inner in folder.entries().items():
            if not name.startswith("."):
                (below if not kind.holds(name) and inner else names).append(name)
        return names, below
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                (below if not kind.holds(entry.name) and is_folder(entry) else names).append(entry.name)
    return sorted(names), sorted(below)
