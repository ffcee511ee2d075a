"""Stamps that detect whether a video has changed: its size and modification time."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

__all__ = ["Stamp", "stamp_of"]


class Stamp(NamedTuple):
    """Size and modification time of a file; they differ once it is replaced or written to."""

    size: int
    """Bytes; 0 if the file is missing."""

    changed: int
    """Modification time in nanoseconds; 0 if the file is missing."""


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """Return the stamp of a file or folder; a folder's covers its entries, whose changes it does not record itself."""
    try:
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            return Stamp(status.st_size, status.st_mtime_ns)
        with os.scandir(path) as entries:
            pictures = [_status(entry) for entry in entries]
    except (OSError, ValueError):  # NUL in the name
        return Stamp(0, 0)
    changed = max([status.st_mtime_ns, *(picture.st_mtime_ns for picture in pictures)])
    return Stamp(sum(picture.st_size for picture in pictures), changed)


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:  # a broken link
        return entry.stat(follow_symlinks=False)
