"""What folders per class have beside the videos that are taken, so that none is left out in silence."""

from __future__ import annotations

import os
from pathlib import Path

from vcycle.data.layouts.files import is_video, printable, suffix_of, videos_among
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
"""Endings of what commonly lies beside videos and is none: of that nothing is said."""
_DEPTH = 3
"""Levels of folders inside a class folder that are looked through."""
_MOST = 100_000
"""Names looked at there, in all: a class folder may have a folder of pictures for each video."""


class Beside:
    """What is not taken, gathered while the class folders of one folder are read, each once.

    Only what has no video's name may be asked for what it is, and the listing of its folder answers that.
    """

    def __init__(self, root: Path) -> None:
        """Gather what lies under a folder of class folders."""
        self.root = root
        self.outside: list[str] = []
        """Videos that lie in no class folder."""
        self._others: list[str] = []
        self._deeper: list[str] = []
        self._left = _MOST

    def videos_in(self, name: str) -> list[str]:
        """Names of the videos in a class folder, sorted; what else is there is noted.

        Raises:
            DataError: If it cannot be read.
        """
        folder = self.root / name
        try:
            names, below = _listed(folder)
        except OSError as error:
            raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
        for inner in below:
            self._look(f"{name}/{inner}", _DEPTH)
        strange = (other for other in names if not is_video(other))
        self._others += [f"{name}/{other}" for other in strange if suffix_of(other) not in _COMPANIONS]
        return videos_among(names)

    def told(self) -> str:
        """One line of what is not taken; none where that is nothing to speak of."""
        parts = []
        if others := len(self._others):
            many, one = "files of class folders are taken for no videos", "file of a class folder is taken for no video"
            parts.append(f"{others:,} {many if others > 1 else one}, such as {self._others[0]}")
        if deeper := len(self._deeper):
            count = f"{deeper:,}" if self._left > 0 else f"at least {deeper:,}"
            lie = "videos lie" if deeper > 1 else "video lies"
            parts.append(f"{count} {lie} deeper than a class folder, such as {self._deeper[0]}")
        if outside := len(self.outside):
            lie = "videos lie" if outside > 1 else "video lies"
            parts.append(f"{outside:,} {lie} in no class folder, such as {self.outside[0]}")
        return printable("; ".join(parts))

    def _look(self, path: str, depth: int) -> None:
        if self._left <= 0:
            return
        try:
            names, below = _listed(self.root / path)
        except OSError:  # it is told of, not trained on
            return
        self._left -= len(names) + len(below)
        self._deeper += [f"{path}/{name}" for name in videos_among(names)]
        if depth > 1:
            for name in below:
                self._look(f"{path}/{name}", depth - 1)


def _listed(folder: Path) -> tuple[list[str], list[str]]:
    """Names in a folder but the hidden, sorted: of files and all that has a video's name, and of folders."""
    names, below = list[str](), list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                (below if not is_video(entry.name) and _is_folder(entry) else names).append(entry.name)
    return sorted(names), sorted(below)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
