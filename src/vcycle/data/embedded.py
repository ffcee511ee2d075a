"""Folders of generated clips, complete for their settings or regenerated."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vcycle.data.layouts.splits import SPLITS
from vcycle.errors import DataError
from vcycle.utils.atomic import atomic_text
from vcycle.utils.folders import make_folder
from vcycle.utils.locks import file_lock

__all__ = ["being_made", "check_clips"]


def check_clips(clips: Mapping[str, int]) -> None:
    """Check the number of clips of each split.

    Raises:
        DataError: if there are none, or a split is unknown.
    """
    if not clips or any(split not in SPLITS or count < 1 for split, count in clips.items()):
        raise DataError(f"clips is {dict(clips)}: give 1 or more to some of {', '.join(SPLITS)}")


@contextmanager
def being_made(root: Path, marker: str, settings: Mapping[str, object], version: int) -> Iterator[bool]:
    """Let one process at a time generate a set; it is marked as finished if the block succeeds.

    Args:
        root: Folder of the set: missing, empty, or with a set of this kind.
        marker: Name of the file that records the settings and whether the set is finished.
        settings: What decides the content of the set.
        version: What else decides it: the version of the code that generates it.

    Yields:
        Whether to generate the set; the folder of an earlier set is then emptied. If not, the set exists, perhaps made
        by another process in the meantime.

    Raises:
        DataError: if the folder has other content, or an earlier set that cannot be removed.
        VcycleError: if the set cannot be written.
    """
    settings = {"format": version, **json.loads(json.dumps(settings))}
    if _is_made(root, marker, settings):  # the folder may be read-only
        yield False
        return
    if root.exists() and not root.is_dir():
        raise DataError(f"{root} is a file: give a folder for the generated clips")
    make_folder(root)
    lock = root / f"{marker}.lock"
    if any(entry != lock for entry in root.iterdir()) and _read(root / marker) is None:
        raise DataError(f"{root} is not empty and has no {marker}: give a new or empty folder")
    with file_lock(lock):
        if _is_made(root, marker, settings):
            yield False
            return
        for split in SPLITS:
            shutil.rmtree(root / split, ignore_errors=True)
            if (root / split).exists():
                raise DataError(f"{root / split} of an earlier set cannot be removed: give a new or empty folder")
        _write(root / marker, settings, finished=False)
        yield True
        _write(root / marker, settings, finished=True)


def _is_made(root: Path, marker: str, settings: Mapping[str, object]) -> bool:
    """Return whether a folder holds the complete set of these settings."""
    return _read(root / marker) == {"settings": settings, "finished": True}


def _read(marker: Path) -> object:
    """Return the content of a marker; None if it is missing or unreadable."""
    try:
        held: object = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return held


def _write(marker: Path, settings: Mapping[str, object], *, finished: bool) -> None:
    atomic_text(marker, json.dumps({"settings": settings, "finished": finished}, indent=2) + "\n")
