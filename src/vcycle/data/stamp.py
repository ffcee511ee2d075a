"""Stamps that detect whether a video has changed: its size, and its modification time or version."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import NamedTuple

from vcycle.data.locations import Url, location

__all__ = ["Stamp", "stamp_of", "stamp_of_url"]

_VERSIONS = (
    *("ETag", "etag", "generation", "md5Hash", "Content-MD5", "checksum", "mtime", "LastModified", "last_modified"),
    *("Last-Modified", "modified", "created"),
)
"""What filesystems call the version of a file in its details, the surest first."""


class Stamp(NamedTuple):
    """Size and modification time or version of a file; they differ once it is replaced or written to."""

    size: int
    """Bytes; 0 if the file is missing."""

    changed: int
    """Modification time in nanoseconds; for a URL, a hash of its version: its entity tag or modification time. 0 if the
    file is missing, or a server tells neither."""


def stamp_of(path: str | os.PathLike[str] | Url) -> Stamp:
    """Return the stamp of a file or folder; a folder's covers its entries, whose changes it does not record itself."""
    try:
        place = location(path) if isinstance(path, str) else path
        if isinstance(place, Url):
            return stamp_of_url(place)
        status = os.stat(place)
        if not stat.S_ISDIR(status.st_mode):
            return Stamp(status.st_size, status.st_mtime_ns)
        with os.scandir(place) as entries:
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


def stamp_of_url(url: Url) -> Stamp:
    """Return the stamp of a URL.

    Raises:
        OSError: If there is no such file, or it cannot be reached.
    """
    details = url.details()
    version = next((str(details[key]) for key in _VERSIONS if details.get(key)), "")
    if url.archive is not None:  # the member's time is what the archive's maker wrote
        version += f" in {stamp_of(url.archive)}"
    changed = int.from_bytes(hashlib.blake2b(version.encode(), digest_size=7).digest()) if version else 0
    return Stamp(int(details.get("size") or 0), changed)
