"""Datasets as they lie on disk: a folder per class, a folder per split and class, or list files.

Torch and the decoder are not needed to find out what a dataset holds.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcycle.errors import DataError

__all__ = ["SPLITS", "VIDEO_SUFFIXES", "VideoList", "read_folder", "read_list", "read_videos"]

SPLITS = ("train", "val", "test")

VIDEO_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("3gp", "asf", "avi", "flv", "h264", "m2ts", "m4v", "mjpeg", "mkv", "mov", "mp4"),
        *("mpeg", "mpg", "mts", "ogv", "ts", "vob", "webm", "wmv"),
    )
)

_LIST_SUFFIXES = (".csv", ".txt")
_SEPARATORS = ("\t", ",", " ")
_HEADER = re.compile(r'"?path"?\s*[,\t ]\s*"?label"?', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class VideoList:
    """Videos and their classes, in a fixed order."""

    root: Path
    """Folder that relative paths start from."""

    paths: tuple[str, ...]
    """One video each, relative to ``root`` or absolute."""

    labels: tuple[int, ...]
    """Index into ``classes`` of each video."""

    classes: tuple[str, ...]

    source: Path
    """The list file or folder that this was read from."""

    lines: tuple[int, ...] = ()
    """Line of each video in the list file, from 1; empty for folders."""

    def __len__(self) -> int:
        """Number of videos."""
        return len(self.paths)

    def path(self, item: int) -> Path:
        """Full path of one video."""
        return self.root / self.paths[item]

    def origin(self, item: int) -> str:
        """Where one video is named, for messages: the list's line, or the path itself."""
        return f"{self.source}, line {self.lines[item]}" if self.lines else str(self.path(item))


def read_videos(
    path: Path, split: str, *, val_fraction: float = 0.2, test_fraction: float = 0.0, check_files: bool = True
) -> VideoList:
    """Find the videos of a split, whichever way the dataset is laid out.

    Recognised, in this order: a list file (taken whole, for any split); a folder with lists named
    ``train.csv``, ``val.csv``, ``test.csv`` (or ``.txt``) and perhaps ``classes.txt``; a folder with a folder
    per split, each with a folder per class; a folder per class, split by a hash of each file's path.

    Args:
        path: The list file or folder.
        split: ``train``, ``val`` or ``test``.
        val_fraction: Share of each class that is kept for ``val`` where the dataset has no split of its own.
        test_fraction: The same for ``test``.
        check_files: Whether to look for each listed file now.

    Raises:
        DataError: If the path or split is missing, a class has no videos, or a list line is wrong.
    """
    path = Path(path)
    if split not in SPLITS:
        raise DataError(f"no split is called {split!r}: {', '.join(SPLITS)} are accepted")
    if path.is_file():
        return read_list(path, check_files=check_files)
    if not path.is_dir():
        raise DataError(f"{path}: no such folder or list file")
    lists = {name: found for name in SPLITS if (found := _list_file(path, name)) is not None}
    if not lists:
        return read_folder(path, split, val_fraction=val_fraction, test_fraction=test_fraction)
    if split not in lists:
        raise DataError(
            f"{path}: no list {split}.csv or {split}.txt; it has {', '.join(f.name for f in lists.values())}"
        )
    classes = _read_classes(path / "classes.txt") or _classes_of(list(lists.values()))
    return read_list(lists[split], classes=classes, check_files=check_files)


def read_folder(root: Path, split: str, *, val_fraction: float = 0.2, test_fraction: float = 0.0) -> VideoList:
    """Find the videos of a split in folders named after their classes.

    ``root/train/CLASS/*``, ``root/val/CLASS/*`` and ``root/test/CLASS/*``, or ``root/CLASS/*``. In the latter
    each class is ordered by a hash of its files' paths and cut at the fractions: the split is the same on any
    machine, and a file that is added moves at most one other across each cut.

    Raises:
        DataError: As ``read_videos``.
    """
    folders = {folder.name for folder in _folders(root)}
    if "train" in folders and (folders <= set(SPLITS) or folders & {"val", "test"}):
        if split not in folders:
            raise DataError(f"{root}: no folder {split}; it has {', '.join(sorted(folders))}")
        base = root / split
        classes = [folder.name for folder in _folders(root / "train")]
        by_class = _videos_by_class(base)
        if strangers := sorted(set(by_class) - set(classes)):
            raise DataError(f"{base / strangers[0]}: no class of this name in {root / 'train'}")
    else:
        base = root
        _check_fractions(val_fraction, test_fraction)
        by_class = {
            name: _keyed_part(name, files, split, val_fraction, test_fraction)
            for name, files in _videos_by_class(root).items()
        }
        classes = list(by_class)
        if not any(by_class.values()):
            raise DataError(f"{root}: no class is large enough for {_share(split, val_fraction, test_fraction)}")
    label_of = {name: label for label, name in enumerate(classes)}
    return VideoList(
        root=base,
        paths=tuple(f"{name}/{file}" for name, files in by_class.items() for file in files),
        labels=tuple(label_of[name] for name, files in by_class.items() for _ in files),
        classes=tuple(classes),
        source=base,
    )


def read_list(
    path: Path, root: Path | None = None, *, classes: Sequence[str] | None = None, check_files: bool = True
) -> VideoList:
    """Read a list of ``path label`` lines, as Kinetics and its kin are distributed.

    The separator is the tab, the comma or the space, whichever comes first in that order among those that
    most lines have; the label is what follows the last one, so that paths may hold blanks. A first line
    ``path,label``, blank lines and lines that start with ``#`` are skipped. A label that is an integer is
    the index of a class, any other its name.

    Args:
        path: The list file.
        root: Folder that relative paths start from; the list's own by default.
        classes: Names of the classes; by default the list's names, sorted, or its integers up to the largest.
        check_files: Whether to look for each listed file now.

    Raises:
        DataError: If the list cannot be read, or a line has no label, a bad label or a missing file.
    """
    path = Path(path)
    root = path.parent if root is None else Path(root)
    rows = _rows(path)
    if not rows:
        raise DataError(f"{path}: the list is empty; lines of 'path label' are accepted")
    names = tuple(classes) if classes is not None else _classes_in(path, rows)
    labels = tuple(_label(path, row, names) for row in rows)
    if check_files:
        for row in rows:
            if not os.path.isfile(root / row.video):
                raise DataError(f"{path}, line {row.line}: no such file: {root / row.video}")
    return VideoList(
        root=root,
        paths=tuple(row.video for row in rows),
        labels=labels,
        classes=names,
        source=path,
        lines=tuple(row.line for row in rows),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    video: str
    label: str


def _rows(path: Path) -> list[_Row]:
    """The lines of a list file, cut into path and label."""
    lines = [
        (number, text.strip())
        for number, text in enumerate(_read_text(path).splitlines(), 1)
        if text.strip() and not text.lstrip().startswith("#")
    ]
    if lines and _HEADER.fullmatch(lines[0][1]):
        lines = lines[1:]
    separator = next((s for s in _SEPARATORS if 2 * sum(s in text for _, text in lines) > len(lines)), " ")
    return [_row(path, number, text, separator) for number, text in lines]


def _row(path: Path, number: int, text: str, separator: str) -> _Row:
    parts = text.rsplit(separator, 1) if separator in text else text.rsplit(None, 1)
    if len(parts) == 2:
        video, label = (part.strip().rstrip(",").strip().strip('"') for part in parts)
        if video and label:
            return _Row(number, video, label)
    raise DataError(f"{path}, line {number}: {text!r} has no label; 'path label' or 'path,label' is accepted")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error


def _is_integer(label: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", label) is not None


def _classes_in(path: Path, rows: Sequence[_Row]) -> tuple[str, ...]:
    """Classes of a list that comes without their names: its own words, or its integers up to the largest."""
    words = [row for row in rows if not _is_integer(row.label)]
    if words and len(words) < len(rows):
        odd = words[0] if 2 * len(words) < len(rows) else next(row for row in rows if _is_integer(row.label))
        others = "integers" if odd in words else "names"
        raise DataError(f"{path}, line {odd.line}: bad label {odd.label!r}: the other labels are {others}")
    if words:
        return tuple(sorted({row.label for row in rows}))
    return tuple(str(number) for number in range(max(int(row.label) for row in rows) + 1))


def _classes_of(lists: Sequence[Path]) -> tuple[str, ...]:
    """Classes that lists without a ``classes.txt`` have between them, so that labels agree across splits."""
    found = [_classes_in(path, rows) for path in lists if (rows := _rows(path))]
    if all(name.isdecimal() for names in found for name in names):
        return max(found, key=len, default=())
    return tuple(sorted({name for names in found for name in names}))


def _read_classes(path: Path) -> tuple[str, ...] | None:
    """Names of the classes, one a line; none where there is no such file."""
    if not path.is_file():
        return None
    names = tuple(line.strip() for line in _read_text(path).splitlines() if line.strip())
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}: the class {twice!r} is named twice")
    return names


def _label(path: Path, row: _Row, classes: Sequence[str]) -> int:
    if _is_integer(row.label):
        number = int(row.label)
        if 0 <= number < len(classes):
            return number
        raise DataError(f"{path}, line {row.line}: bad label {row.label}: 0 to {len(classes) - 1} are accepted")
    if row.label in classes:
        return classes.index(row.label)
    some = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
    raise DataError(f"{path}, line {row.line}: bad label {row.label!r}: the classes are {some}")


def _list_file(folder: Path, split: str) -> Path | None:
    found = [file for suffix in _LIST_SUFFIXES if (file := folder / f"{split}{suffix}").is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name} list the {split} split: keep one")
    return found[0] if found else None


def _folders(root: Path) -> list[Path]:
    """Folders directly under a folder, sorted by name, without hidden ones."""
    try:
        return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{root}: cannot be read: {error.strerror}") from error


def _videos_by_class(root: Path) -> dict[str, list[str]]:
    """Names of the video files in each class folder under a folder, both sorted."""
    found: dict[str, list[str]] = {}
    for folder in _folders(root):
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
        found[folder.name] = sorted(
            name for name in names if Path(name).suffix.lower() in VIDEO_SUFFIXES and not name.startswith(".")
        )
        if not found[folder.name]:
            raise DataError(
                f"{folder}: the class has no videos; files ending in {' '.join(sorted(VIDEO_SUFFIXES))} are"
            )
    if not found:
        raise DataError(f"{root}: no class folders with videos, no {', '.join(s + '.csv' for s in SPLITS)}")
    return found


def _check_fractions(val: float, test: float) -> None:
    if val < 0 or test < 0 or val + test >= 1:
        raise DataError(f"val fraction {val:g} and test fraction {test:g}: none below 0 and a sum below 1 are accepted")


def _share(split: str, val: float, test: float) -> str:
    """What part of each class a split is to have, in words."""
    share = {"train": 1 - val - test, "val": val, "test": test}[split]
    return f"a {split} split of {share:g} of its videos"


def _keyed_part(name: str, files: Sequence[str], split: str, val: float, test: float) -> list[str]:
    """The part of one class that falls to a split, sorted."""
    ranked = sorted(files, key=lambda file: hashlib.blake2b(f"{name}/{file}".encode(), digest_size=8).digest())
    first, second = round(test * len(files)), round((test + val) * len(files))
    cuts = {"test": slice(0, first), "val": slice(first, second), "train": slice(second, None)}
    return sorted(ranked[cuts[split]])
