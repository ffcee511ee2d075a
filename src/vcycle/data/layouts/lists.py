"""List files, as commonly used for Kinetics: one video and its label per line.

.. code-block:: text

    ROOT/train.csv    ROOT/val.csv    ROOT/test.csv    ROOT/classes.txt

Split lists may have any name known to ``splits``, such as ``valid.csv``. One list may hold all splits: then a header
names its columns, one of which is ``split``.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vcycle.data.layouts.files import check_file, is_video, names_in, read_text, refuse_video, shown, suffix_of
from vcycle.data.layouts.splits import SPLITS, names_of_splits, split_called, splits_among
from vcycle.data.layouts.videos import VideoList
from vcycle.data.locations import Location, joined, location
from vcycle.errors import DataError

__all__ = ["list_splits", "read_list", "read_lists", "splits_in_list"]

_SUFFIXES = (".csv", ".txt")
_SEPARATORS = ("\t", ",", " ")
_MOST_CLASSES = 1_000_000  # a larger number is a time or an id in place of the label
_CLASSES = "classes.txt"
_COLUMNS = {
    "video": (
        *("path", "video", "videopath", "videofile", "videoname", "videoid", "file", "filename", "filepath"),
        *("clip", "clippath", "clipname", "name", "id"),
    ),
    "label": (
        *("label", "labelid", "labelname", "class", "classid", "classname", "classlabel", "category", "target"),
        *("action", "actionname"),
    ),
    "split": ("split", "subset", "partition", "set"),
}
"""Accepted header names of each column, ignoring case, blanks, underscores and hyphens."""
_COLUMN_OF = {name: column for column, names in _COLUMNS.items() for name in names}


def list_splits(root: Location) -> dict[str, Location]:
    """Return the list file of each split in a folder.

    Raises:
        DataError: If two files list the same split.
    """
    names = [name for name in names_in(root) if suffix_of(name) in _SUFFIXES and (root / name).is_file()]
    called = {name: os.path.splitext(name)[0] for name in names}
    return {split: root / name for split, name in splits_among(root, called).items()}


def splits_in_list(path: Location) -> tuple[str, ...]:
    """Return the splits named in the column ``split`` of a list; none without such a column.

    Raises:
        DataError: For the reasons of ``read_list``.
    """
    refuse_video(path)
    named = {row.split for row in _rows(location(path))}
    return tuple(split for split in SPLITS if split in named)


def read_lists(root: Location, split: str, *, videos: Location | None = None, check_files: bool = True) -> VideoList:
    """Read the list of a split in a folder of lists; labels are consistent across splits.

    Args:
        root: The folder.
        split: The split to read.
        videos: Folder that relative paths start from; ``root`` by default.
        check_files: Whether to check that each listed file exists.

    Raises:
        DataError: If there is no such list, or for the reasons of ``read_list``.
    """
    lists = list_splits(root)
    if split not in lists:
        has = ", ".join(file.name for file in lists.values()) or "no list"
        raise DataError(f"{root}: no list {split}.csv or {split}.txt; it has {has}")
    path = lists[split]
    if odd := next((row for row in _rows(path) if row.split not in ("", split)), None):
        raise DataError(f"{path}, line {odd.line}: the video is of split {odd.split}, but the list is of {split}")
    classes = _read_classes(root / _CLASSES) or _classes_of(list(lists.values()))
    return read_list(path, videos, classes=classes, check_files=check_files)


def read_list(
    path: Location,
    root: Location | None = None,
    *,
    classes: Sequence[str] | None = None,
    split: str | None = None,
    check_files: bool = True,
) -> VideoList:
    """Read a list of ``path label`` lines, as commonly used for Kinetics.

    The separator is the tab, the comma or the space: the first of these that most lines have. The label follows the
    last separator, so paths may contain blanks. Blank lines, lines that start with ``#`` and a header such as
    ``path,label`` or ``video_path,label`` are skipped. A header may name columns in any order, including ``split``;
    unknown columns are ignored. An integer label is the index of a class, any other label is its name.

    Args:
        path: The list file.
        root: Folder that relative paths start from; the list's own by default.
        classes: Names of the classes; by default from ``classes.txt`` beside the list, else the list's names, sorted,
            or its integers up to the largest.
        split: Use only the lines of this split, if the list has a column ``split``; all by default.
        check_files: Whether to check that each listed file exists.

    Raises:
        DataError: If the list cannot be read, or a line has no label, a bad label or a missing file, or no line is
            of the split.
    """
    path = location(path)
    refuse_video(path)
    root = path.parent if root is None else location(root)
    rows = _rows(path)
    if not rows:
        raise DataError(f"{path}: the list is empty; needs lines of 'path label'")
    names = tuple(classes) if classes is not None else _read_classes(path.parent / _CLASSES) or _classes_in(path, rows)
    if split is not None:
        rows = [row for row in rows if row.split in ("", split)]
        if not rows:
            raise DataError(f"{path}: no lines of the {split} split")
    label_of = {name: label for label, name in enumerate(names)}
    labels = [_label(path, row, names, label_of) for row in rows]
    if check_files:
        for row in rows:
            check_file(f"{path}, line {row.line}", joined(root, row.video))
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
    split: str = ""
    """From the list's ``split`` column; empty if it has none."""


@dataclass(frozen=True, slots=True)
class _Header:
    separator: str | None
    """None for any run of blanks."""
    names: tuple[str, ...]
    places: dict[str, int]
    """Positions of the columns ``video``, ``label`` and optionally ``split``."""

    @property
    def plain(self) -> bool:
        """Return whether the columns are those of a list without a header: path, then label."""
        return len(self.names) == 2 and self.places["video"] == 0


def _rows(path: Location) -> list[_Row]:
    """Return the lines of a list file, split into path, label and split."""
    lines = [
        (number, text.strip())
        for number, text in enumerate(read_text(path).splitlines(), 1)
        if text.strip() and not text.lstrip().startswith("#")
    ]
    header = _header(path, *lines[0]) if lines else None
    if header is not None:
        lines = lines[1:]
        if not header.plain:
            return [_row_of_columns(path, number, text, header) for number, text in lines]
    separator = next((s for s in _SEPARATORS if 2 * sum(s in text for _, text in lines) > len(lines)), " ")
    rows = [_row(path, number, text, separator) for number, text in lines]
    _refuse_columns(path, rows, separator)
    return rows


def _header(path: Location, line: int, text: str) -> _Header | None:
    """Parse the first line as a header; None if it is a video.

    Raises:
        DataError: If two columns have the same meaning.
    """
    separator = next((s for s in ("\t", ",") if s in text), None)
    names = tuple(name.strip().strip('"').strip() for name in text.split(separator))
    columns = [_COLUMN_OF.get(re.sub(r"[\s_-]", "", name.casefold())) for name in names]
    if not {"video", "label"} <= set(columns):
        return None
    places: dict[str, int] = {}
    for place, column in enumerate(columns):
        if column is None:
            continue
        if column in places:
            raise DataError(f"{path}, line {line}: columns {names[places[column]]} and {names[place]}: keep one")
        places[column] = place
    return _Header(separator, names, places)


def _row(path: Location, number: int, text: str, separator: str) -> _Row:
    parts = text.rsplit(separator, 1) if separator in text else text.rsplit(None, 1)
    if len(parts) == 2:
        video, label = (part.strip().rstrip(",").strip().strip('"') for part in parts)
        if video and label:
            return _Row(number, video, label)
    raise DataError(f"{path}, line {number}: {text!r} has no label; must be 'path label' or 'path,label'")


def _row_of_columns(path: Location, number: int, text: str, header: _Header) -> _Row:
    origin = f"{path}, line {number}"
    try:
        cut = text.split() if header.separator is None else next(csv.reader([text], delimiter=header.separator))
    except csv.Error as error:
        raise DataError(f"{origin}: {error}") from error
    cells = [cell.strip().strip('"') for cell in cut]
    if len(cells) != len(header.names):
        raise DataError(f"{origin}: {len(cells)} values, but the header has {len(header.names)}")
    found = {column: cells[place] for column, place in header.places.items()}
    for column, value in found.items():
        if not value:
            raise DataError(f"{origin}: no {header.names[header.places[column]]}")
    split = ""
    if "split" in found:
        known = split_called(found["split"])
        if known is None:
            raise DataError(f"{origin}: unknown split {found['split']!r}: must be {names_of_splits()}")
        split = known
    return _Row(number, found["video"], found["label"], split)


def _refuse_columns(path: Location, rows: Sequence[_Row], separator: str) -> None:
    """Refuse lists that are not paths and labels: a header with unknown words, a last column of splits."""
    first = rows[0] if rows else None
    if first is None:
        return
    if all(split_called(row.label) and separator in row.video for row in rows):
        raise DataError(
            f"{path}, line {first.line}: the last column is a split, not a label: add a header such as "
            "path,label,split to name the columns"
        )
    if rows[1:] and not is_video(first.video) and "/" not in first.video and all(is_video(r.video) for r in rows[1:]):
        raise DataError(
            f"{path}, line {first.line}: {first.video} is not a video, but all others are: if the line is a header, "
            "name its columns path and label (or video_path, filename; class, category)"
        )


def _is_integer(label: str) -> bool:
    return re.fullmatch(r"[+-]?\d{1,18}", label) is not None


def _classes_in(path: Location, rows: Sequence[_Row]) -> tuple[str, ...]:
    """Return the classes of a list without class names: its labels, or its integers up to the largest."""
    words = [row for row in rows if not _is_integer(row.label)]
    if words and len(words) < len(rows):
        odd = words[0] if 2 * len(words) < len(rows) else next(row for row in rows if _is_integer(row.label))
        others = "integers" if odd in words else "names"
        raise DataError(f"{path}, line {odd.line}: bad label {odd.label!r}: the other labels are {others}")
    if words:
        return tuple(sorted({row.label for row in rows}))
    largest = max(rows, key=lambda row: int(row.label))
    if int(largest.label) >= _MOST_CLASSES:
        raise DataError(f"{path}, line {largest.line}: bad label {largest.label}: must be below {_MOST_CLASSES:,}")
    return tuple(str(number) for number in range(int(largest.label) + 1))


def _classes_of(lists: Sequence[Location]) -> tuple[str, ...]:
    """Return the classes that lists without a ``classes.txt`` share, so that labels are consistent across splits."""
    found = [_classes_in(path, rows) for path in lists if (rows := _rows(path))]
    if all(name.isdecimal() for names in found for name in names):
        return max(found, key=len, default=())
    return tuple(sorted({name for names in found for name in names}))


def _read_classes(path: Location) -> tuple[str, ...] | None:
    """Read class names, one per line; None if there is no such file."""
    if not path.is_file():
        return None
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}: the class {twice!r} is named twice")
    return names


def _label(path: Location, row: _Row, classes: Sequence[str], label_of: dict[str, int]) -> int:
    if _is_integer(row.label):
        number = int(row.label)
        if 0 <= number < len(classes):
            return number
        raise DataError(f"{path}, line {row.line}: bad label {row.label}: must be from 0 to {len(classes) - 1}")
    if row.label in label_of:
        return label_of[row.label]
    raise DataError(f"{path}, line {row.line}: bad label {row.label!r}: the classes are {shown(classes)}")
