"""Names of splits: one table for folders and lists, for classification and super-resolution."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vcycle.data.locations import Location
from vcycle.errors import DataError

__all__ = ["SPLITS", "SPLIT_NAMES", "WHOLE", "folders_of_splits", "names_of_splits", "split_called", "splits_among"]

SPLIT_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "validate"),
    "test": ("test", "testing"),
}
"""Names of each split, the usual one first; case is ignored."""

SPLITS = tuple(SPLIT_NAMES)

WHOLE = "all"
"""What a report calls a dataset that has no splits of its own."""

_SPLIT_OF = {name: split for split, names in SPLIT_NAMES.items() for name in names}


def split_called(name: str) -> str | None:
    """Return the split that a name stands for; None for any other name.

    Example:
        >>> split_called("Valid"), split_called("train"), split_called("cats")
        ('val', 'train', None)
    """
    return _SPLIT_OF.get(name.casefold())


def names_of_splits() -> str:
    """Return all names of splits, for a message."""
    return ", ".join(f"{first} (or {', '.join(others)})" for first, *others in SPLIT_NAMES.values())


def splits_among(root: Location, called: Mapping[str, str]) -> dict[str, str]:
    """Map splits, in order, to the matching names in a folder.

    Args:
        root: The folder, for messages.
        called: Its folders or files, and the name to match for each: a file's name without suffix.

    Raises:
        DataError: If two of them have the same split.
    """
    found: dict[str, str] = {}
    for name in sorted(called):
        split = split_called(called[name])
        if split is None:
            continue
        if split in found:
            raise DataError(f"{root}: both {found[split]} and {name} are the {split} split: keep one")
        found[split] = name
    return {split: found[split] for split in SPLITS if split in found}


def folders_of_splits(root: Path) -> dict[str, Path]:
    """Return the split folders in a folder, by split; empty if it is not a folder.

    Raises:
        DataError: If two folders have the same split, or the folder cannot be read.
    """
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if split_called(entry.name) and os.path.isdir(entry.path)]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DataError(f"{root}: cannot be read: {error.strerror}") from error
    return {split: root / name for split, name in splits_among(root, {name: name for name in names}).items()}
