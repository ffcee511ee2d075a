"""Comparison of files on disk with what was written."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vcycle.data.prepare.records import checksum
from vcycle.data.video import VideoError

__all__ = ["Part", "compare_parts"]


class Part(NamedTuple):
    """A written range of bytes."""

    path: str
    offset: int
    bytes: int
    checksum: str
    whole: bool
    """Whether the range is the whole file."""


def compare_parts(parts: Sequence[Part], tell: Callable[[float], None]) -> bool:
    """Read parts of files and compare them with their checksums; runs in a worker.

    Returns:
        True if all are unchanged.

    Raises:
        VideoError: If one is missing or differs.
    """
    for done, part in enumerate(parts, 1):
        try:
            size = os.path.getsize(part.path)
            if size != part.bytes if part.whole else size < part.offset + part.bytes:
                raise VideoError(part.path, f"has {size} bytes, but {part.offset + part.bytes} were written")
            if checksum(part.path, part.offset, part.bytes) != part.checksum:
                raise VideoError(part.path, "its content has changed since it was written")
        except OSError as error:
            raise VideoError(part.path, error.strerror or str(error)) from error
        tell(done / len(parts))
    return True
