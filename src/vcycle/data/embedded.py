"""Folders of clips that are made on the spot: whole under their settings, or made anew."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vcycle.data.folders import make_folder
from vcycle.errors import DataError

__all__ = ["being_made", "is_made"]


def is_made(root: Path, marker: str, settings: Mapping[str, object]) -> bool:
    """Whether a folder holds the whole set that these settings make.

    Args:
        root: Folder of the set.
        marker: Name of the file in it that holds the settings.
        settings: As plain data.
    """
    return _read(root / marker) == {"settings": settings, "finished": True}


@contextmanager
def being_made(root: Path, marker: str, settings: Mapping[str, object], splits: Sequence[str]) -> Iterator[None]:
    """Empty the folder of an earlier set, and call the new one finished once the block has ended well.

    Args:
        root: Folder of the set: new, empty, or holding an earlier set of this kind.
        marker: Name of the file in it that holds the settings, and whether the set is finished.
        settings: As plain data.
        splits: Folders that a set has.

    Raises:
        DataError: if the folder holds something else, or an earlier set that cannot be removed.
        VcycleError: if it cannot be made.
    """
    if root.exists() and not root.is_dir():
        raise DataError(f"{root} is a file: give a folder for the clips that are made here")
    make_folder(root)
    if any(root.iterdir()) and _read(root / marker) is None:
        raise DataError(f"{root} is not empty and has no {marker}: give a new or empty folder")
    for split in splits:
        shutil.rmtree(root / split, ignore_errors=True)
        if (root / split).exists():
            raise DataError(f"{root / split} of an earlier set cannot be removed: give a new or empty folder")
    _write(root / marker, settings, finished=False)
    yield
    _write(root / marker, settings, finished=True)


def _read(marker: Path) -> object:
    """What a marker holds; None if there is none that can be read."""
    try:
        held: object = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return held


def _write(marker: Path, settings: Mapping[str, object], *, finished: bool) -> None:
    part = marker.with_suffix(f".{os.getpid()}.part")
    text = json.dumps({"settings": settings, "finished": finished}, indent=2)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(marker)
