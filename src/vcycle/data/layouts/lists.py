"""List files, as Kinetics and its kin are passed around: one video and its label a line.

.. code-block:: text

    ROOT/train.csv    ROOT/val.csv    ROOT/test.csv    ROOT/classes.txt
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcycle.data.layouts.files import SPLITS, check_file, read_text, refuse_video, shown
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["list_splits", "read_list", "read_lists"]

_SUFFIXES = (".csv", ".txt")
_SEPARATORS = ("\t", ",", " ")
_MOST_CLASSES = 1_000_000  # a larger number is a time or an identity that stands in the label's place
_HEADER = re.compile(r'"?path"?\s*[,\t ]\s*"?label"?', re.IGNORECASE)


def list_splits(root: Path) -> tuple[str, ...]:
    """Splits that a folder has a list file for."""
    return tuple(split for split in SPLITS if any((root / f"{split}{suffix}").is_file() for suffix in _SUFFIXES))


def read_lists(root: Path, split: str, *, videos: Path | None = None, check_files: bool = True) -> VideoList:
    """Read the list of a split in a folder of lists; labels agree across its splits.

    Args:
        root: The folder.
        split: Which list.
        videos: Folder that relative paths start from; ``root`` by default.
        check_files: Whether to look for each listed file now.

    Raises:
        DataError: If there is no such list, or as ``read_list``.
    """
    lists = {name: found for name in SPLITS if (found := _list_file(root, name)) is not None}
    if split not in lists:
        has = ", ".join(file.name for file in lists.values()) or "no list"
        raise DataError(f"{root}: no list {split}.csv or {split}.txt; it has {has}")
    classes = _read_classes(root / "classes.txt") or _classes_of(list(lists.values()))
    return read_list(lists[split], videos, classes=classes, check_files=check_files)


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
    refuse_video(path)
    root = path.parent if root is None else Path(root)
    rows = _rows(path)
    if not rows:
        raise DataError(f"{path}: the list is empty; lines of 'path label' are accepted")
    names = tuple(classes) if classes is not None else _classes_in(path, rows)
    label_of = {name: label for label, name in enumerate(names)}
    labels = [_label(path, row, names, label_of) for row in rows]
    if check_files:
        for row in rows:
            check_file(f"{path}, line {row.line}", root / row.video)
    return VideoList(
        root=root,
        paths=[row.video for row in rows],
        labels=labels,
        classes=names,
        source=path,
        lines=[row.line for row in rows],
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
        for number, text in enumerate(read_text(path).splitlines(), 1)
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


def _is_integer(label: str) -> bool:
    return re.fullmatch(r"[+-]?\d{1,18}", label) is not None


def _classes_in(path: Path, rows: Sequence[_Row]) -> tuple[str, ...]:
    """Classes of a list that comes without their names: its own words, or its integers up to the largest."""
    words = [row for row in rows if not _is_integer(row.label)]
    if words and len(words) < len(rows):
        odd = words[0] if 2 * len(words) < len(rows) else next(row for row in rows if _is_integer(row.label))
        others = "integers" if odd in words else "names"
        raise DataError(f"{path}, line {odd.line}: bad label {odd.label!r}: the other labels are {others}")
    if words:
        return tuple(sorted({row.label for row in rows}))
    largest = max(rows, key=lambda row: int(row.label))
    if int(largest.label) >= _MOST_CLASSES:
        raise DataError(f"{path}, line {largest.line}: bad label {largest.label}: below {_MOST_CLASSES:,} is accepted")
    return tuple(str(number) for number in range(int(largest.label) + 1))


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
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}: the class {twice!r} is named twice")
    return names


def _label(path: Path, row: _Row, classes: Sequence[str], label_of: dict[str, int]) -> int:
    if _is_integer(row.label):
        number = int(row.label)
        if 0 <= number < len(classes):
            return number
        raise DataError(f"{path}, line {row.line}: bad label {row.label}: 0 to {len(classes) - 1} are accepted")
    if row.label in label_of:
        return label_of[row.label]
    raise DataError(f"{path}, line {row.line}: bad label {row.label!r}: the classes are {shown(classes)}")


def _list_file(folder: Path, split: str) -> Path | None:
    found = [file for suffix in _SUFFIXES if (file := folder / f"{split}{suffix}").is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name} list the {split} split: keep one")
    return found[0] if found else None
