"""A file that is whole or absent, whatever interrupts its writing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["LONGEST_NAME", "PARTIAL", "partial_of", "written_whole"]

PARTIAL = ".partial"
"""Ending of a file that is being written."""

LONGEST_NAME = 255
"""Bytes that the file systems in use take as a name."""


def partial_of(file: Path) -> Path:
    """Where a file is written before it takes its name: beside it, also where its name leaves no room for an ending."""
    name = file.name + PARTIAL
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = hashlib.blake2b(os.fsencode(file.name), digest_size=16).hexdigest() + PARTIAL
    return file.with_name(name)


@contextmanager
def written_whole(file: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name once it is on the disk; after an exception it is gone.

    Raises:
        OSError: If it cannot be written.
    """
    partial = partial_of(file)
    try:
        with partial.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(partial, file)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
