"""Names of files and folders in a prepared folder."""

from __future__ import annotations

from pathlib import Path

from vcycle.data.locations import Location, Url

__all__ = ["INDEX", "REPORT", "array_file", "is_prepared", "journal_of", "level_folder"]

INDEX = "index.npz"
"""The index that loaders read; it exists once the folder is ready."""

REPORT = "report.json"
"""The report, with failures and their causes."""


def is_prepared(folder: Location) -> bool:
    """Return whether a folder holds a prepared dataset that is ready to use. One at a URL has to be copied first."""
    return not isinstance(folder, Url) and (Path(folder) / INDEX).is_file()


def journal_of(folder: Location) -> Location:
    """Return the journal of finished work in a folder: a file; at a URL, a folder of files."""
    return folder / ("journal" if isinstance(folder, Url) else "journal.jsonl")


def level_folder(side: int) -> str:
    """Return the folder name of a level."""
    return f"{side}px"


def array_file(side: int, split: str) -> str:
    """Return the array file of a split and level, relative to the prepared folder."""
    return f"{level_folder(side)}/{split}.u8"
