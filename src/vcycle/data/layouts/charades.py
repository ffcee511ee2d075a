"""Charades: the official CSV files, multi-label, with the times of each action.

.. code-block:: text

    ROOT/Charades_v1_train.csv     or in ROOT/Charades, as in the archive
    ROOT/Charades_v1_test.csv      the set used for reported results, here ``val``
    ROOT/Charades_v1_classes.txt
    ROOT/Charades_v1_480/ID.mp4    or ROOT/Charades_v1/ID.mp4
    ROOT/Charades_v1_rgb/ID/ID-000001.jpg    alternative: frames at 24 fps

Actions are written ``c092 11.90 21.20;c147 0.00 12.60``: class, start and end in seconds. A video without actions is
kept, with no labels.
"""

import os
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

from vcycle.data.layouts.files import classes_in_lines, first_file, names_in, read_table, stems
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["charades_splits", "read_charades"]

_PLACES = (".", "Charades", "annotations")
_LISTS = {"train": "Charades_v1_train.csv", "val": "Charades_v1_test.csv"}
_CLASSES = "Charades_v1_classes.txt"
_FOLDERS = ("Charades_v1_480", "Charades_v1", "videos")
_FRAMES = "Charades_v1_rgb"
_FRAME_RATE = 24.0


def charades_splits(root: Path) -> tuple[str, ...]:
    """Return the splits for which a folder has a Charades list."""
    if _file(root, _CLASSES) is None:
        return ()
    return tuple(split for split, name in _LISTS.items() if _file(root, name) is not None)


def read_charades(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Find the videos of a split of Charades: a multi-label list with the times of each action.

    Args:
        root: Folder with the lists, or with a folder ``Charades`` that has them.
        split: ``train`` or ``val``.
        videos: Folder of the videos or of the folders of frames; found under ``root`` by default.
        check_files: Whether to check that each listed file exists.
        frame_rate: Frames per second of folders of frames; the set's own by default.

    Raises:
        DataError: If a list is missing or malformed, or a checked file is missing.
    """
    classes = classes_in_lines(_needed(root, _CLASSES), first=0)
    path = _needed(root, _LISTS[split])
    folder, usual_rate = _folder(root, videos)
    files = {name: name for name in names_in(folder)} if usual_rate else stems(folder)
    paths, lines = list[str](), array("i")
    labels, starts, spans = array("i"), array("q", [0]), array("d")
    for line, row in read_table(path, ("id", "actions")):
        usual = row["id"] if usual_rate else f"{row['id']}.mp4"
        if check_files and row["id"] not in files:
            raise DataError(f"{path}, line {line}: no such video: {folder / usual}")
        paths.append(files.get(row["id"], usual))
        lines.append(line)
        for label, start, end in _actions(f"{path}, line {line}", row, len(classes)):
            labels.append(label)
            spans.extend((start, end))
        starts.append(len(labels))
    if not paths:
        raise DataError(f"{path}: the list is empty")
    return VideoList(
        root=folder,
        paths=paths,
        labels=labels,
        classes=classes,
        source=path,
        lines=lines,
        label_starts=starts,
        label_spans=spans,
        frame_rate=frame_rate or usual_rate,
    )


def _actions(origin: str, row: Mapping[str, str], classes: int) -> Iterator[tuple[int, float, float]]:
    """Yield the class, start and end in seconds of each action of a row."""
    for text in filter(None, (part.strip() for part in row["actions"].split(";"))):
        try:
            name, start, end = text.split()
            label, times = int(name.removeprefix("c")), (float(start), float(end))
        except ValueError:
            raise DataError(f"{origin}: {text!r} is not an action such as 'c092 11.90 21.20'") from None
        if not 0 <= label < classes:
            raise DataError(f"{origin}: unknown class {name!r}: must be c000 to c{classes - 1:03}")
        if not 0 <= times[0] <= times[1]:
            raise DataError(f"{origin}: {text!r} ends before it starts")
        yield label, *times


def _folder(root: Path, videos: Path | None) -> tuple[Path, float | None]:
    """Return where the videos are, and the frame rate if they are folders of pictures."""
    if videos is not None:
        return videos, None if stems(videos) else _FRAME_RATE
    places = [root / place for place in _PLACES]
    for names, rate in ((_FOLDERS, None), ((_FRAMES,), _FRAME_RATE)):
        for place in places:
            for name in names:
                if os.path.isdir(place / name):
                    return place / name, rate
    return root, None


def _file(root: Path, name: str) -> Path | None:
    return first_file([root / place for place in _PLACES], [name])


def _needed(root: Path, name: str) -> Path:
    found = _file(root, name)
    if found is None:
        raise DataError(f"{root}: no {name}, and no Charades/{name}")
    return found
