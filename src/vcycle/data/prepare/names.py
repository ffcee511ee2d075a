"""Where things lie in a prepared folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["INDEX", "JOURNAL", "REPORT", "array_file", "is_prepared", "level_folder"]

INDEX = "index.npz"
"""What a loader reads; there once the folder is ready."""

JOURNAL = "journal.jsonl"
"""What has been done."""

REPORT = "report.json"
"""What failed, and why."""


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds a prepared dataset, ready to be read."""
    return (Path(folder) / INDEX).is_file()


def level_folder(side: int) -> str:
    """Name of the folder of one level."""
    return f"{side}px"


def array_file(side: int, split: str) -> str:
    """The array of one split in one level, relative to the prepared folder."""
    return f"{level_folder(side)}/{split}.u8"
