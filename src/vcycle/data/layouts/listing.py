"""A list file by columns: videos, labels and splits, as bytes and numbers."""

from __future__ import annotations

import csv
import os
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, islice
from typing import NoReturn

from vcycle.data.layouts import files
from vcycle.data.layouts.files import is_video, shown, text_blocks
from vcycle.data.layouts.splits import names_of_splits, split_called
from vcycle.data.layouts.videos import Strings, VideoList
from vcycle.data.locations import Location
from vcycle.errors import DataError

__all__ = ["ListFile", "has_splits"]

_FRAMES_COUNTED = re.compile(r"[\s,]+\d+$")
_LOOKED_UP = 100
"""Number of names that end in a number to look for, to tell whether the number counts frames."""
_SEPARATORS = ("\t", ",", " ")
_MOST_CLASSES = 1_000_000  # a larger number is a time or an id in place of the label
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


def has_splits(path: Location) -> bool:
    """Return whether a list has a column of splits, by its first lines."""
    lines, texts = next(_lines(path), _NOTHING)
    header = _header(path, lines[0], texts[0]) if lines else None
    return header is not None and "split" in header.places


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


class _Names(dict[str, int]):
    """The names in a column: a number for each text, that of its name in order of appearance, or -1 if it has none."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}
        """First line of each name."""
        self._numbers: dict[str, int] = {}

    def add(self, text: str, name: str, line: int) -> int:
        """Return the number of a text that is new."""
        if name and name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            self.lines[name] = line
        number = self[text] = self._numbers.get(name, -1)
        return number


class _Columns:
    """Tells lists that are not paths and labels: a header with unknown words, a last column of splits."""

    def __init__(self) -> None:
        self._line, self._first = 0, ""
        self._videos, self._cut, self._header = 0, True, True

    def see(self, lines: Sequence[int], videos: Sequence[str], separator: str) -> None:
        """Look at the next videos and their lines."""
        if videos and not self._videos:
            self._line, self._first = lines[0], videos[0]
            self._header = not is_video(self._first) and "/" not in self._first
        self._cut = self._cut and all(separator in video for video in videos)
        self._header = self._header and all(map(is_video, islice(videos, not self._videos, None)))
        self._videos += len(videos)

    def refuse(self, path: Location, labels: Iterable[str]) -> None:
        """Refuse such a list, once all videos have been seen.

        Raises:
            DataError: If it is one.
        """
        if self._videos and self._cut and all(map(split_called, labels)):
            raise DataError(
                f"{path}, line {self._line}: the last column is a split, not a label: add a header such as "
                "path,label,split to name the columns"
            )
        if self._header and self._videos > 1:
            raise DataError(
                f"{path}, line {self._line}: {self._first} is not a video, but all others are: if the line is a "
                "header, name its columns path and label (or video_path, filename; class, category)"
            )


class ListFile:
    """A list file by columns. It is read once, a block at a time, and no line stays in memory as a Python object."""

    def __init__(self, path: Location, kept: Collection[str] | None = None) -> None:
        """Read a list.

        Args:
            path: The file.
            kept: Splits whose videos to keep, an empty one for those of a list without the column; all by default.

        Raises:
            DataError: If it cannot be read, or a line is malformed.
        """
        self.path = path
        self.labels = _Names()
        """Labels in the whole list."""
        self.splits: dict[str, int] = {}
        """First line of each split in the column ``split``."""
        self._kept = kept
        self._columns = _Columns()
        self._labels, self._lines = array("i"), array("i")
        blocks = _lines(path)
        first = next(blocks, _NOTHING)
        header = _header(path, first[0][0], first[1][0]) if first[0] else None
        if header is not None:
            first = (first[0][1:], first[1][1:]) if first[0][1:] else next(blocks, _NOTHING)
        texts = first[1]
        self._separator = next((s for s in _SEPARATORS if 2 * sum(s in text for text in texts) > len(texts)), " ")
        read = self._read_plain if header is None or header.plain else partial(self._read_columns, header, {"": ""})
        self.videos = Strings(chain.from_iterable(read(*block) for block in chain([first], blocks)))
        self._columns.refuse(path, self.labels.lines)

    def _read_plain(self, lines: Sequence[int], texts: Sequence[str]) -> Sequence[str]:
        """Return the videos of some lines of paths and labels."""
        videos, labels = list[str](), list[int]()
        known, separator = self.labels, self._separator
        for line, text in zip(lines, texts, strict=True):
            video, found, name = text.rpartition(separator)
            if not found:
                video, name = (["", "", *text.rsplit(None, 1)])[-2:]
            if not video[-1:].isalnum() or video[0] == '"':
                video = _cleaned(video)
            if (label := known.get(name)) is None:
                label = known.add(name, _cleaned(name), line)
            if label < 0 or not video:
                raise DataError(
                    f"{self.path}, line {line}: {text!r} has no label; must be 'path label' or 'path,label'"
                )
            videos.append(video)
            labels.append(label)
        self._refuse_labels()
        self._columns.see(lines, videos, separator)
        if self._kept is not None and "" not in self._kept:
            return ()
        self._labels.extend(labels)
        self._lines.extend(lines)
        return videos

    def _read_columns(
        self, header: _Header, split_of: dict[str, str], lines: Sequence[int], texts: Sequence[str]
    ) -> Sequence[str]:
        """Return the videos of some lines of a list with a header; ``split_of`` has the known texts of its splits."""
        videos = list[str]()
        known, separator, kept = self.labels, header.separator, self._kept
        columns, at = len(header.names), header.places
        for line, text in zip(lines, texts, strict=True):
            cells = (
                text.split(separator) if separator is None or '"' not in text else self._unquoted(header, line, text)
            )
            if len(cells) != columns:
                raise DataError(f"{self.path}, line {line}: {len(cells)} values, but the header has {columns}")
            video, name = cells[at["video"]].strip().strip('"'), cells[at["label"]]
            if (label := known.get(name)) is None:
                label = known.add(name, name.strip().strip('"'), line)
            named = cells[at["split"]] if "split" in at else ""
            if label < 0 or not video or (not named and "split" in at):
                self._refuse_empty(header, line, cells)
            if (split := split_of.get(named)) is None:
                self._refuse_empty(header, line, cells)
                split = split_of[named] = self._split(line, named.strip().strip('"'))
            if kept is None or split in kept:
                videos.append(video)
                self._labels.append(label)
                self._lines.append(line)
        self._refuse_labels()
        return videos

    def _unquoted(self, header: _Header, line: int, text: str) -> list[str]:
        try:
            return next(csv.reader([text], delimiter=header.separator or " "))
        except csv.Error as error:
            raise DataError(f"{self.path}, line {line}: {error}") from error

    def _refuse_empty(self, header: _Header, line: int, cells: Sequence[str]) -> None:
        for place in header.places.values():
            if not cells[place].strip().strip('"'):
                raise DataError(f"{self.path}, line {line}: no {header.names[place]}")

    def _split(self, line: int, name: str) -> str:
        found = split_called(name)
        if found is None:
            raise DataError(f"{self.path}, line {line}: unknown split {name!r}: must be {names_of_splits()}")
        self.splits.setdefault(found, line)
        return found

    def _refuse_labels(self) -> None:
        """Refuse a list whose labels are all different: they are times or ids."""
        if len(self.labels.lines) > _MOST_CLASSES:
            label, line = next(islice(self.labels.lines.items(), _MOST_CLASSES, None))
            raise DataError(f"{self.path}, line {line}: bad label {label!r}: more than {_MOST_CLASSES:,} labels differ")

    def refuse_nothing(self) -> None:
        """Refuse a list without lines.

        Raises:
            DataError: If it has none.
        """
        if not self.labels:
            raise DataError(f"{self.path}: the list is empty; needs lines of 'path label'")

    def classes(self) -> tuple[str, ...]:
        """Return the classes of a list without class names: its labels, or its integers up to the largest."""
        names = self.labels.lines
        words = [name for name in names if not _is_integer(name)]
        if words and len(words) < len(names):
            whole = [_is_integer(name) for name in names]
            listed = ListFile(self.path)._labels  # of all splits
            few = 2 * sum(not whole[label] for label in listed) < len(listed)
            odd = words[0] if few else next(name for name in names if _is_integer(name))
            others = "integers" if few else "names"
            raise DataError(f"{self.path}, line {names[odd]}: bad label {odd!r}: the other labels are {others}")
        if words:
            return tuple(sorted(words))
        largest = max(names, key=int)
        if int(largest) >= _MOST_CLASSES:
            raise DataError(f"{self.path}, line {names[largest]}: bad label {largest}: must be below {_MOST_CLASSES:,}")
        return tuple(str(number) for number in range(int(largest) + 1))

    def videos_in(
        self, root: Location, classes: Sequence[str], *, check_files: bool, frame_rate: float | None = None
    ) -> VideoList:
        """Return the videos, whose paths start from a folder.

        With a frame rate, folders of frames are videos too. Lists of them usually have the number of frames between
        folder and label, which is left out if every line has one. If a file or folder has the name with the number,
        such as ``take 1``, the number is part of the name.

        Raises:
            DataError: If a label is none of the classes, or a checked file is missing.
        """
        label_of = {name: label for label, name in enumerate(classes)}
        names = list(self.labels.lines)
        labels = [_label(name, len(classes), label_of) for name in names]
        if -1 in labels:  # perhaps in another split
            for item, number in enumerate(self._labels):
                if labels[number] < 0:
                    self._refuse_label(self._lines[item], names[number], classes)
        counted = frame_rate is not None and self.videos and all(map(_FRAMES_COUNTED.search, self.videos))
        if counted:
            whole = (os.path.join(str(root), name) for name in islice(self.videos, _LOOKED_UP))
            counted = not any(map(os.path.exists, whole))
        found = VideoList(
            root=root,
            paths=[_FRAMES_COUNTED.sub("", path) for path in self.videos] if counted else self.videos,
            labels=array("i", (labels[number] for number in self._labels)),
            classes=tuple(classes),
            source=self.path,
            lines=self._lines,
            frame_rate=frame_rate,
        )
        if check_files:
            files.check_files(found)
        return found

    def _refuse_label(self, line: int, name: str, classes: Sequence[str]) -> NoReturn:
        if _is_integer(name):
            raise DataError(f"{self.path}, line {line}: bad label {name}: must be from 0 to {len(classes) - 1}")
        raise DataError(f"{self.path}, line {line}: bad label {name!r}: the classes are {shown(classes)}")


_Lines = tuple[Sequence[int], Sequence[str]]
"""Lines of a list: their numbers and texts."""
_NOTHING: _Lines = ((), ())


def _lines(path: Location) -> Iterator[_Lines]:
    """Yield the lines of a list file with their numbers, many at a time, without blank ones and comments."""
    first = 1
    for block in text_blocks(path):
        texts = [text.strip() for text in block.splitlines()]
        numbers: Sequence[int] = range(first, first + len(texts))
        first += len(texts)
        if not all(texts) or "#" in block:
            kept = [bool(text) and text[0] != "#" for text in texts]
            numbers, texts = list(compress(numbers, kept)), list(compress(texts, kept))
        if texts:
            yield numbers, texts


def _cleaned(part: str) -> str:
    """Return a part of a line without the blanks, commas and quotes around it."""
    return part.strip().rstrip(",").strip().strip('"')


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


def _is_integer(label: str) -> bool:
    return re.fullmatch(r"[+-]?\d{1,18}", label) is not None


def _label(name: str, classes: int, label_of: Mapping[str, int]) -> int:
    """Return the class of a label: its integer, or its name's; -1 if there is no such class."""
    if not _is_integer(name):
        return label_of.get(name, -1)
    return int(name) if 0 <= int(name) < classes else -1
