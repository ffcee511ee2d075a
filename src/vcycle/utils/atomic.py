"""Files that are whole or absent, whatever interrupts their writing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vcycle.errors import VcycleError

__all__ = ["PARTIAL", "atomic_path", "atomic_text", "atomic_write", "partial_of", "too_long"]

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
def atomic_path(file: Path, *, durable: bool = True) -> Iterator[Path]:
    """A path to write to; what is there after the block takes the name of the file. After an exception it is deleted.

    Args:
        file: What is written; replaced if it exists.
        durable: Whether to wait until the content is on the disk, so that it also survives a loss of power.

    Raises:
        OSError: If it cannot be written.
    """
    partial = partial_of(file)
    try:
        yield partial
        if durable:
            with partial.open("rb") as handle:
                os.fsync(handle.fileno())
        os.replace(partial, file)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


@contextmanager
def atomic_write(file: Path) -> Iterator[BinaryIO]:
    """A binary file to write to, which takes its name once it is on the disk; see ``atomic_path``."""
    with atomic_path(file) as partial, partial.open("wb") as handle:
        yield handle


def atomic_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8; see ``atomic_path``.

    Raises:
        VcycleError: If it cannot be written.
    """
    try:
        with atomic_write(file) as handle:
            handle.write(text.encode())
    except OSError as error:
        raise VcycleError(f"{file} cannot be written: {error.strerror or error}") from error
