"""What tells whether a video is still the one that was looked at: its size, and when it was last written to."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

__all__ = ["Stamp", "stamp_of"]


class Stamp(NamedTuple):
    """What a video that was replaced or written to no longer agrees with."""

    size: int
    """Bytes; 0 if it is not there."""

    changed: int
    """Time of its last change in nanoseconds; 0 if it is not there."""


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """The stamp of a file, or of a folder: of what lies in it, which may be written to without its knowing."""
    try:
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            return Stamp(status.st_size, status.st_mtime_ns)
        with os.scandir(path) as entries:
            pictures = [_status(entry) for entry in entries]
    except (OSError, ValueError):  # a zero byte in its name
        return Stamp(0, 0)
    changed = max([status.st_mtime_ns, *(picture.st_mtime_ns for picture in pictures)])
    return Stamp(sum(picture.st_size for picture in pictures), changed)


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:  # a link to nothing
        return entry.stat(follow_symlinks=False)
