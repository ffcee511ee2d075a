"""What lies on the disk compared with what was written there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vcycle.data.prepare.records import checksum
from vcycle.data.video import VideoError

__all__ = ["Part", "compare_parts"]


class Part(NamedTuple):
    """Bytes that were written."""

    path: str
    offset: int
    bytes: int
    checksum: str
    whole: bool
    """They are all of the file."""


def compare_parts(parts: Sequence[Part], tell: Callable[[float], None]) -> bool:
    """Read parts of files and compare them; what a worker does.

    Returns:
        True: all are what they were.

    Raises:
        VideoError: If one is missing or something else.
    """
    for done, part in enumerate(parts, 1):
        try:
            size = os.path.getsize(part.path)
            if size != part.bytes if part.whole else size < part.offset + part.bytes:
                raise VideoError(part.path, f"{size} bytes, where {part.offset + part.bytes} were written")
            if checksum(part.path, part.offset, part.bytes) != part.checksum:
                raise VideoError(part.path, "its bytes are not those that were written")
        except OSError as error:
            raise VideoError(part.path, error.strerror or str(error)) from error
        tell(done / len(parts))
    return True
