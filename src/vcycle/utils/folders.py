"""Creating output folders."""

from pathlib import Path

from vcycle.errors import VcycleError

__all__ = ["make_folder"]


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
