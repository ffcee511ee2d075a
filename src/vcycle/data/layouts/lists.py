"""List files, as commonly used for Kinetics: one video and its label per line.

.. code-block:: text

    ROOT/train.csv    ROOT/val.csv    ROOT/test.csv    ROOT/classes.txt

Split lists may have any name known to ``splits``, such as ``valid.csv``. One list may hold all splits: then a header
names its columns, one of which is ``split``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from vcycle.data.layouts.files import names_in, read_text, refuse_video, suffix_of
from vcycle.data.layouts.listing import ListFile, has_splits
from vcycle.data.layouts.splits import SPLITS, splits_among
from vcycle.data.layouts.videos import VideoList
from vcycle.data.locations import Location, location
from vcycle.errors import DataError

__all__ = ["list_splits", "read_list", "read_lists", "splits_in_list"]

_SUFFIXES = (".csv", ".txt")
_CLASSES = "classes.txt"


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
    path = location(path)
    if not has_splits(path):  # most lists, which are not read further
        return ()
    named = ListFile(path, ()).splits
    return tuple(split for split in SPLITS if split in named)


def read_lists(
    root: Location,
    split: str,
    *,
    videos: Location | None = None,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Read the list of a split in a folder of lists; labels are consistent across splits.

    Args:
        root: The folder.
        split: The split to read.
        videos: Folder that relative paths start from; ``root`` by default.
        check_files: Whether to check that each listed file exists.
        frame_rate: See ``read_list``.

    Raises:
        DataError: If there is no such list, or for the reasons of ``read_list``.
    """
    lists = list_splits(root)
    if split not in lists:
        has = ", ".join(file.name for file in lists.values()) or "no list"
        raise DataError(f"{root}: no list {split}.csv or {split}.txt; it has {has}")
    path = lists[split]
    found = ListFile(path)
    if odd := next((name for name in found.splits if name != split), None):
        raise DataError(f"{path}, line {found.splits[odd]}: the video is of split {odd}, but the list is of {split}")
    found.refuse_nothing()
    classes = _read_classes(root / _CLASSES)
    if not classes:
        others = {name: found if name == split else ListFile(other, ()) for name, other in lists.items()}
        classes = _classes_of(list(others.values()))
    return found.videos_in(
        path.parent if videos is None else videos, classes, check_files=check_files, frame_rate=frame_rate
    )


def read_list(
    path: Location,
    root: Location | None = None,
    *,
    classes: Sequence[str] | None = None,
    split: str | None = None,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Read a list of ``path label`` lines, as commonly used for Kinetics.

    The separator is the tab, the comma or the space: the first of these that most lines of the first megabyte have. The
    label follows the last separator, so paths may contain blanks. Blank lines, lines that start with ``#`` and a header
    such as ``path,label`` or ``video_path,label`` are skipped. A header may name columns in any order, including
    ``split``; unknown columns are ignored. An integer label is the index of a class, any other label is its name.

    Args:
        path: The list file.
        root: Folder that relative paths start from; the list's own by default.
        classes: Names of the classes; by default from ``classes.txt`` beside the list, else the list's names, sorted,
            or its integers up to the largest.
        split: Use only the lines of this split, if the list has a column ``split``; all by default.
        check_files: Whether to check that the listed files exist: all of a list of up to a million, and as many, evenly
            spaced, of a longer one.
        frame_rate: With a rate, folders of frames are videos too: so many frames per second. Their number, between
            folder and label, is ignored.

    Raises:
        DataError: If the list cannot be read, or a line has no label, a bad label or a missing file, or no line is
            of the split.
    """
    path = location(path)
    refuse_video(path)
    found = ListFile(path, None if split is None else ("", split))
    found.refuse_nothing()
    names = tuple(classes) if classes is not None else _read_classes(path.parent / _CLASSES) or found.classes()
    if not found.videos:
        raise DataError(f"{path}: no lines of the {split} split")
    base = path.parent if root is None else location(root)
    return found.videos_in(base, names, check_files=check_files, frame_rate=frame_rate)


def _classes_of(lists: Sequence[ListFile]) -> tuple[str, ...]:
    """Return the classes that lists without a ``classes.txt`` share, so that labels are consistent across splits."""
    found = [one.classes() for one in lists if one.labels]
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
