"""Atomic file writes: a file is complete or absent, whatever interrupts writing."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vcycle.errors import VcycleError

__all__ = ["PARTIAL", "atomic_path", "atomic_text", "atomic_write", "partial_of", "sync_folder", "too_long"]

PARTIAL = ".partial"
"""Suffix of a file that is being written."""

_LONGEST_NAME = 255  # bytes; the limit of common file systems
_LONGEST_PATH = 4000  # below the system's limit, to leave room for the suffix


def partial_of(file: Path) -> Path:
    """Return the temporary path for writing a file: beside it, and short enough even if its name has maximum length."""
    name = file.name + PARTIAL
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.blake2b(os.fsencode(file.name), digest_size=16).hexdigest() + PARTIAL
    return file.with_name(name)


def too_long(file: str | Path) -> str | None:
    """Return why a file name is too long, or None if it is not."""
    name, path = os.path.basename(file), os.fsencode(file)
    if len(os.fsencode(name)) <= _LONGEST_NAME and len(path) <= _LONGEST_PATH:
        return None
    return (
        f"its name is too long: the output would be called {name}; names can have up to {_LONGEST_NAME} bytes and "
        f"paths up to {_LONGEST_PATH}"
    )


@contextmanager
def atomic_path(file: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces the file after the block, and is deleted after an exception.

    Args:
        file: The file to write; replaced if it exists. Of a link, such as `/dev/stdout`, the target is replaced.
        durable: Whether to sync to disk, so that the file survives a power loss.

    Raises:
        OSError: If the file cannot be written, or is a device or a pipe.
    """
    if file.exists() and not (file.is_file() or file.is_dir()):  # a folder cannot be replaced in any case
        raise OSError(errno.EINVAL, "not a regular file")
    if file.is_symlink():
        file = Path(os.path.realpath(file))
    partial = partial_of(file)
    try:
        yield partial
        if durable:
            with partial.open("rb") as handle:
                os.fsync(handle.fileno())
        os.replace(partial, file)
        if durable:
            sync_folder(file.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk: only then do new names in it survive a power loss. A no-op where the system cannot."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # it may be written to, but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(file: Path) -> Iterator[BinaryIO]:
    """Yield a binary file to write to; it replaces the file once it is synced to disk. See ``atomic_path``."""
    with atomic_path(file) as partial, partial.open("wb") as handle:
        yield handle


def atomic_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8; see ``atomic_path``.

    Raises:
        VcycleError: If the file cannot be written.
    """
    try:
        with atomic_write(file) as handle:
            handle.write(text.encode())
    except OSError as error:
        raise VcycleError(f"{file} cannot be written: {error.strerror or error}") from error
