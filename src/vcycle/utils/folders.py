"""Output folders, and the space on their disks."""

import shutil
from pathlib import Path

from vcycle.errors import VcycleError
from vcycle.utils.reading import resolved

__all__ = ["free_bytes", "make_folder", "nearest_folder"]


def make_folder(folder: Path, what: str = "folder") -> None:
    """Create a folder and its parents if they do not exist.

    Args:
        folder: The folder to create.
        what: Its name in messages.

    Raises:
        VcycleError: if it cannot be created, or is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VcycleError(f"{what} {folder} cannot be created: {error.strerror or error}") from error


def nearest_folder(folder: Path) -> Path:
    """Return a folder, or its nearest existing parent."""
    return next(parent for parent in (resolved(folder), *resolved(folder).parents) if parent.is_dir())


def free_bytes(folder: Path) -> int:
    """Return the free space on the disk of a folder, which need not exist."""
    return shutil.disk_usage(nearest_folder(folder)).free
