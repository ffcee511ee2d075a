"""A file that is whole or absent, whatever interrupts its writing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["PARTIAL", "partial_of", "too_long", "written_whole"]

PARTIAL = ".partial"
"""Ending of a file that is being written."""

_LONGEST_NAME = 255  # bytes that the file systems in use take as a name
_LONGEST_PATH = 4000  # somewhat less than systems take, for the ending of a file that is being written


def partial_of(file: Path) -> Path:
    """Where a file is written before it takes its name: beside it, also where its name leaves no room for an ending."""
    name = file.name + PARTIAL
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.blake2b(os.fsencode(file.name), digest_size=16).hexdigest() + PARTIAL
    return file.with_name(name)


def too_long(file: str | Path) -> str | None:
    """Why a file cannot be named so, in words; none where it can."""
    name, path = os.path.basename(file), os.fsencode(file)
    if len(os.fsencode(name)) <= _LONGEST_NAME and len(path) <= _LONGEST_PATH:
        return None
    return (
        f"its name is too long: what is written would be called {name}, and names of up to {_LONGEST_NAME} bytes and "
        f"paths of up to {_LONGEST_PATH} can be written"
    )


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
