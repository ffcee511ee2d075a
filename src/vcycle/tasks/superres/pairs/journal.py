"""What a preparation of frames has done so far: a file that only grows, line by line, so that a kill costs the last."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import FileIO
from pathlib import Path

from vcycle.data.stamp import Stamp
from vcycle.errors import DataError
from vcycle.tasks.base import SPLITS
from vcycle.tasks.superres.pairs.store import StoredClip, is_store

__all__ = ["FrameJournal", "is_begun", "journal_of", "stores_in"]

_NAME = "journal.jsonl"
_REMEDY = "name another folder, or delete this one"

Stamps = Sequence[Stamp]
"""Of a clip's frames at high resolution, and of those at low resolution where it has its own."""


def is_begun(folder: Path) -> bool:
    """Whether a store was begun in a folder and is not finished."""
    return (folder / _NAME).is_file() and not is_store(folder)


class FrameJournal:
    """Clips that are in their place, each with what its source was then."""

    def __init__(self, folder: Path, handle: FileIO, settings: Mapping[str, str]) -> None:
        """Read the journal of a folder, or begin it; a last line that was cut short does not count.

        Raises:
            DataError: If it is damaged or of other settings, or missing beside a finished store.
        """
        self._handle = handle
        self._written: dict[str, tuple[list[Stamp], StoredClip]] = {}
        handle.seek(0)
        *lines, torn = handle.read().split(b"\n")
        if torn:
            handle.truncate(sum(len(line) + 1 for line in lines))
        if not lines:
            if is_store(folder):
                raise DataError(f"{folder}: holds frames, and no {_NAME} that says what they were made of: {_REMEDY}")
            self._append(settings)
            return
        try:
            begun, *entries = [json.loads(line) for line in lines]
            differing = [(key, begun[key], wanted) for key, wanted in settings.items() if begun[key] != wanted]
            for entry in entries:
                stamps = [Stamp(*stamp) for stamp in entry["source"]]
                self._written[entry["clip"]["name"]] = stamps, StoredClip(**entry["clip"])
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{folder / _NAME}: damaged ({error}): {_REMEDY}") from error
        for key, had, wanted in differing:
            raise DataError(f"{folder}: was prepared with {key} {had}, not {wanted}: {_REMEDY}")

    def written(self, name: str, source: Stamps) -> StoredClip | None:
        """What was written of a clip, unless its source has changed since."""
        stamps, clip = self._written.get(name, (None, None))
        return clip if stamps == list(source) else None

    def note(self, clip: StoredClip, source: Stamps) -> None:
        """Remember a clip; what was written of it is on the disk."""
        self._append({"clip": asdict(clip), "source": source})

    def _append(self, entry: object) -> None:
        self._handle.write(json.dumps(entry).encode() + b"\n")
        os.fsync(self._handle.fileno())


@contextmanager
def journal_of(folder: Path, settings: Mapping[str, str]) -> Iterator[FrameJournal]:
    """The journal of a folder, for this process alone.

    Args:
        folder: Where the frames are written; made if missing.
        settings: How they are made.

    Raises:
        DataError: If another process has it, or as ``FrameJournal``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileIO(folder / _NAME, "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{folder}: another process is preparing frames there") from error
        yield FrameJournal(folder, handle, settings)


def stores_in(folder: Path) -> list[Path]:
    """The stores that a folder is, or has of each split.

    Raises:
        DataError: if one is not finished.
    """
    places = (folder, *(folder / split for split in SPLITS))
    if unfinished := next(filter(is_begun, places), None):
        raise DataError(f"{unfinished}: is not prepared yet: the same `vcycle prepare` resumes it")
    return list(filter(is_store, places))
