"""Comparison of files on disk with what was written."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vcycle.data.locations import Url, location
from vcycle.data.prepare.records import checksum
from vcycle.data.video import VideoError

__all__ = ["Extent", "compare_extents"]


class Extent(NamedTuple):
    """A written range of bytes."""

    path: str
    offset: int
    bytes: int
    checksum: str
    whole: bool
    """Whether the range is the whole file."""


def compare_extents(
    parts: Sequence[Extent], tell: Callable[[float], None] = lambda _: None, *, contents: bool = True
) -> bool:
    """Read parts of files and compare them with their checksums; runs in a worker.

    Args:
        parts: What was written.
        tell: Called with the share that is done.
        contents: Whether to compare more than sizes, except at a URL.

    Returns:
        True if all are unchanged.

    Raises:
        VideoError: If one is missing or differs.
    """
    for done, part in enumerate(parts, 1):
        try:
            place = location(part.path)
            size = int(place.details().get("size") or 0) if isinstance(place, Url) else os.path.getsize(place)
            if size != part.bytes if part.whole else size < part.offset + part.bytes:
                raise VideoError(part.path, f"has {size} bytes, but {part.offset + part.bytes} were written")
            if (
                contents
                and not isinstance(place, Url)
                and part.checksum != checksum(part.path, part.offset, part.bytes)
            ):
                raise VideoError(part.path, "its content has changed since it was written")
        except OSError as error:
            raise VideoError(part.path, error.strerror or str(error)) from error
        tell(done / len(parts))
    return True
