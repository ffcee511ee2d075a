"""The index of a prepared dataset: metadata of every video, without opening one. Needs only numpy.

``index.npz`` holds only arrays, and has the same bytes for the same videos: no timestamps, no absolute paths.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.locations import Location, Url, local_path
from vcycle.data.prepare.names import INDEX, level_folder
from vcycle.data.prepare.records import CHECKSUM_BYTES, Record
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.prepare.sources import Sources
from vcycle.errors import DataError
from vcycle.utils.atomic import atomic_write
from vcycle.utils.reading import check_regular

__all__ = ["PreparedIndex", "load_index", "write_index"]

_FORMAT = 1
_PER_VIDEO = ("frames", "displayed", "duration", "tolerance", "tick")
_LISTS = ("pts", "filled")
_PER_LEVEL = ("size", "bytes", "offset", "checksum")
_OF_SPLIT = ("labels", "label_starts", "label_spans", "spans")


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedIndex:
    """Metadata of a prepared dataset. Rows are files, sorted by name; columns are levels, ascending."""

    folder: Path
    settings: PrepareSettings
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    failures: Mapping[str, str]
    """Files that could not be prepared: the cause by name."""

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.columns["frames"])

    def name(self, row: int) -> str:
        """Return the split and name of a file."""
        first, last = self.columns["name_ends"][row : row + 2]
        return bytes(self.columns["names"][first:last]).decode("utf-8", "surrogateescape")

    def rows(self, split: str) -> NDArray[np.int64]:
        """Return the row of each video of a split; for a video that could not be prepared, ``-1 - number``."""
        return self.columns[f"rows:{split}"]

    def file(self, row: int, level: int) -> Path:
        """Return where a file is stored in a level: its own video file, or its split's array."""
        return self.folder / self.settings.file(self.settings.levels[level], self.name(row))

    def has(self, row: int, level: int) -> bool:
        """Return whether a level stores a file; if not, the level below is as large."""
        return bool(self.columns["bytes"][row, level] > 0)

    def stamps(self, row: int) -> NDArray[np.int64]:
        """Return the time stamps of a file's frames, in ticks from 0."""
        runs = self._list("pts", row)
        return np.concatenate([[0], np.cumsum(np.repeat(runs[:, 0], runs[:, 1]))])

    def info(self, row: int) -> VideoInfo:
        """Return the times and displayed size of a video, as in its source."""
        height, width = self.columns["displayed"][row].tolist()
        return VideoInfo(
            times=self.stamps(row).astype(np.float64) * float(self.columns["tick"][row]),
            duration=float(self.columns["duration"][row]),
            height=height,
            width=width,
            tolerance=float(self.columns["tolerance"][row]),
        )

    def filled(self, row: int, frames: NDArray[np.int64]) -> int:
        """Return how many of some frames could not be decoded during preparation."""
        runs = self._list("filled", row)
        return int(np.isin(frames, runs[:, 0]).sum()) if len(runs) else 0

    def damaged(self) -> dict[str, int]:
        """Return the files with undecodable frames: their number by name."""
        counts = np.diff(self.columns["filled_ends"])
        return {self.name(row): int(counts[row]) for row in np.flatnonzero(counts).tolist()}

    def videos(self, split: str) -> VideoList:
        """Return the videos of a split that could be prepared.

        Raises:
            DataError: If there is no such split, or it is empty.
        """
        if split not in self.splits:
            raise DataError(f"{self.folder}: no {split} split; it has {', '.join(self.splits)}")
        rows = self.rows(split)
        good = rows >= 0
        if not good.any():
            raise DataError(f"{self.folder}: none of the {len(rows)} videos of the {split} split could be prepared")
        levels, suffix = [level_folder(side) for side in self.settings.levels], self.settings.suffix
        largest = len(levels) - 1 - np.argmax(self.columns["bytes"][rows[good], ::-1] > 0, axis=1)
        return VideoList(
            root=self.folder,
            paths=[
                f"{levels[level]}/{self.name(row)}{suffix}"
                for row, level in zip(rows[good].tolist(), largest.tolist(), strict=True)
            ],
            classes=self.classes,
            source=self.folder,
            **_selected({name: self.columns[f"{name}:{split}"] for name in _OF_SPLIT}, good),
        )

    def _list(self, name: str, row: int) -> NDArray[np.int64]:
        first, last = self.columns[f"{name}_ends"][row : row + 2]
        return self.columns[name][first:last]


def _selected(columns: Mapping[str, NDArray[Any]], good: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the labels and spans of some of a split's videos, as arguments of ``VideoList``."""
    labels, starts = columns["labels"], columns["label_starts"]
    kept = good if not len(starts) else np.repeat(good, np.diff(starts))
    pairs = {"label_spans": kept, "spans": good}
    found = {name: columns[name].reshape(-1, 2)[mask].ravel() for name, mask in pairs.items() if len(columns[name])}
    if len(starts):
        found["label_starts"] = np.concatenate([[0], np.cumsum(np.diff(starts)[good])])
    return {name: values.tolist() for name, values in {"labels": labels[kept], **found}.items()}


def write_index(
    folder: Location,
    settings: PrepareSettings,
    sources: Sources,
    records: Mapping[str, Record],
    failures: Mapping[str, str],
) -> None:
    """Write the index atomically.

    Args:
        folder: The prepared folder.
        settings: The settings of the preparation.
        sources: The source files.
        records: Record of each prepared file, by name.
        failures: Cause for each file that could not be prepared, by name.

    Raises:
        OSError: If the index cannot be written.
    """
    names = sorted(records)
    failed = sorted(failures)
    number = {name: row for row, name in enumerate(names)} | {name: -1 - row for row, name in enumerate(failed)}
    row_of = np.array([number[file.name] for file in sources.files], dtype=np.int64)
    about = {
        "format": _FORMAT,
        "settings": settings.to_json(),
        "classes": list(next(iter(sources.videos.values())).classes),
        "splits": list(sources.videos),
        "failures": [[name, failures[name]] for name in failed],
    }
    columns: dict[str, NDArray[Any]] = {
        "about": np.frombuffer(json.dumps(about, sort_keys=True).encode(), dtype=np.uint8)
    }
    columns |= _columns([records[name] for name in names], len(settings.levels)) | _text("name", names)
    for split, videos in sources.videos.items():
        columns[f"rows:{split}"] = row_of[sources.rows[split]]
        for name in _OF_SPLIT:
            kind = np.float64 if name.endswith("spans") else np.int64
            columns[f"{name}:{split}"] = np.array(getattr(videos, name), dtype=kind)
    place = folder / INDEX
    in_order: dict[str, Any] = {name: columns[name] for name in sorted(columns)}
    if isinstance(place, Url):
        content = io.BytesIO()
        np.savez(content, **in_order)
        place.write_bytes(content.getvalue())
        return
    with atomic_write(place) as file:
        np.savez(file, **in_order)


def _columns(records: Sequence[Record], levels: int) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {
        "frames": np.array([r.frames for r in records], dtype=np.int64),
        "displayed": np.array([r.displayed for r in records], dtype=np.int64).reshape(-1, 2),
        "duration": np.array([r.duration for r in records], dtype=np.float64),
        "tolerance": np.array([r.tolerance for r in records], dtype=np.float64),
        "tick": np.array([r.tick for r in records], dtype=np.float64),
        "size": np.zeros((len(records), levels, 2), dtype=np.int64),
        "bytes": np.zeros((len(records), levels), dtype=np.int64),
        "offset": np.zeros((len(records), levels), dtype=np.int64),
        "checksum": np.zeros((len(records), levels, CHECKSUM_BYTES), dtype=np.uint8),
    }
    for row, record in enumerate(records):
        for level, stored in enumerate(record.levels):
            if stored is not None:
                columns["size"][row, level] = stored.size
                columns["bytes"][row, level] = stored.bytes
                columns["offset"][row, level] = stored.offset
                columns["checksum"][row, level] = np.frombuffer(bytes.fromhex(stored.checksum), dtype=np.uint8)
    for name in _LISTS:
        lists = [getattr(record, name) for record in records]
        columns[name] = np.array([pair for pairs in lists for pair in pairs], dtype=np.int64).reshape(-1, 2)
        columns[f"{name}_ends"] = np.concatenate([[0], np.cumsum([len(pairs) for pairs in lists])]).astype(np.int64)
    return columns


def _text(name: str, strings: Sequence[str]) -> dict[str, NDArray[Any]]:
    encoded = [string.encode("utf-8", "surrogateescape") for string in strings]
    ends = np.concatenate([[0], np.cumsum([len(text) for text in encoded])]).astype(np.int64)
    return {f"{name}s": np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}_ends": ends}


def load_index(folder: Location) -> PreparedIndex:
    """Read the index of a prepared folder.

    Raises:
        DataError: If it is a URL, cannot be read, or has another version's format.
    """
    folder = local_path(str(folder), "prepared data")
    file = folder / INDEX
    try:
        check_regular(file)
        with np.load(file, allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
        about = json.loads(bytes(columns.pop("about")))
        if about["format"] != _FORMAT:
            raise DataError(f"{file}: has format {about['format']} of another vcycle version: run vcycle prepare again")
        settings = PrepareSettings.from_json(about["settings"])
        wanted = {*_PER_VIDEO, *_PER_LEVEL, "names", "name_ends"}
        wanted |= {part for name in _LISTS for part in (name, f"{name}_ends")}
        wanted |= {f"{name}:{split}" for split in about["splits"] for name in ("rows", *_OF_SPLIT)}
        if missing := sorted(wanted - set(columns)):
            raise KeyError(missing[0])
        return PreparedIndex(
            folder=folder,
            settings=settings,
            classes=tuple(about["classes"]),
            splits=tuple(about["splits"]),
            failures=dict(about["failures"]),
            columns=columns,
        )
    except DataError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, RecursionError, MemoryError) as error:
        raise DataError(f"{file}: not a readable index ({error}): run vcycle prepare again") from error
