"""Reports files in class folders that are not used, so that none is ignored silently."""

from __future__ import annotations

import os

from vcycle.data.layouts.files import is_video, printable, suffix_of, videos_among
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

    def __init__(self, root: Location) -> None:
        """Start with a folder of class folders."""
        self.root = root
        self.outside: list[str] = []
        """Videos outside class folders."""
        self._others: list[str] = []
        self._deeper: list[str] = []
        self._left = _MOST

    def videos_in(self, name: str) -> list[str]:
        """Return the names of the videos in a class folder, sorted; records everything else.

        Raises:
            DataError: If the folder cannot be read.
        """
        folder = self.root / name
        try:
            names, below = _listed(folder)
        except OSError as error:
            raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
        for inner in below:
            self._look(f"{name}/{inner}", _DEPTH)
        strange = (other for other in names if not is_video(other))
        self._others += [f"{name}/{other}" for other in strange if suffix_of(other) not in _COMPANIONS]
        return videos_among(names)

    def told(self) -> str:
        """Describe the unused files in one line; empty if there are none worth mentioning."""
        parts = []
        if others := len(self._others):
            many, one = "files in class folders are not videos", "file in a class folder is not a video"
            parts.append(f"{others:,} {many if others > 1 else one}, such as {self._others[0]}")
        if deeper := len(self._deeper):
            count = f"{deeper:,}" if self._left > 0 else f"at least {deeper:,}"
            ignored = "videos in nested folders are" if deeper > 1 else "video in a nested folder is"
            parts.append(f"{count} {ignored} ignored, such as {self._deeper[0]}")
        if outside := len(self.outside):
            ignored = "videos outside class folders are" if outside > 1 else "video outside class folders is"
            parts.append(f"{outside:,} {ignored} ignored, such as {self.outside[0]}")
        return printable("; ".join(parts))

    def _look(self, path: str, depth: int) -> None:
        if self._left <= 0:
            return
        try:
            names, below = _listed(self.root / path)
        except OSError:  # only reported, not trained on
            return
        self._left -= len(names) + len(below)
        self._deeper += [f"{path}/{name}" for name in videos_among(names)]
        if depth > 1:
            for name in below:
                self._look(f"{path}/{name}", depth - 1)


def _listed(folder: Location) -> tuple[list[str], list[str]]:
    """Return the visible names in a folder, sorted: files and everything with a video's name, and folders."""
    names, below = list[str](), list[str]()
    if isinstance(folder, Url):
        for name, is_folder in folder.entries().items():
            if not name.startswith("."):
                (below if not is_video(name) and is_folder else names).append(name)
        return names, below
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                (below if not is_video(entry.name) and _is_folder(entry) else names).append(entry.name)
    return sorted(names), sorted(below)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False
