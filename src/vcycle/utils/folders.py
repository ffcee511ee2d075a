"""Folders that are written to."""

from pathlib import Path

from vcycle.errors import VcycleError

__all__ = ["make_folder"]


def make_folder(folder: Path, what: str = "folder") -> None:
    """Make a folder, and those that it lies in, unless it is there.

    Args:
        folder: Which.
        what: What a message calls it.

    Raises:
        VcycleError: if it cannot be made, or is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VcycleError(f"{what} {folder} cannot be made: {error.strerror or error}") from error
