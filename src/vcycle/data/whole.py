"""A file that is whole or absent, whatever interrupts its writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["PARTIAL", "written_whole"]

PARTIAL = ".partial"
"""Ending of a file that is being written."""


@contextmanager
def written_whole(file: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name once it is on the disk; after an exception it does not.

    Raises:
        OSError: If it cannot be written.
    """
    partial = file.with_name(file.name + PARTIAL)
    with partial.open("wb") as handle:
        yield handle
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(partial, file)
