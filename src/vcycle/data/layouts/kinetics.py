"""Kinetics-400, -600 and -700: the official CSV files, with videos named after them.

.. code-block:: text

    ROOT/train.csv, ROOT/val.csv, ROOT/test.csv          or in ROOT/annotations; also validate.csv, kinetics_train.csv
    ROOT/train/CLASS/ID_SSSSSS_EEEEEE.mp4                or ROOT/train/*.mp4, or under ROOT/videos
    ROOT/val/CLASS/ID_SSSSSS_EEEEEE.mp4

The columns are ``label,youtube_id,time_start,time_end,split`` and optionally ``is_cc``. A video's file is named after
its id and its times in seconds, six digits each; the names of class folders do not matter. A file ``ID.mp4`` is the
whole video, of which clips use the listed times. Videos disappear from the web: those without a file are left out and
counted, unless files are not checked.
"""

import csv
from array import array
from collections.abc import Sequence
from math import inf
from pathlib import Path

from vcycle.data.layouts.files import label_in, names_in, read_table, stems
from vcycle.data.layouts.splits import SPLIT_NAMES, SPLITS
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError
from vcycle.utils.reading import check_regular

__all__ = ["kinetics_splits", "read_kinetics"]

_COLUMNS = ("label", "youtube_id", "time_start", "time_end")
_FOLDERS = {
    split: [f"{parent}{name}" for name in names for parent in ("", "videos/", "videos_")]
    for split, names in SPLIT_NAMES.items()
}
_MOST_MISSING = 0.5


def kinetics_splits(root: Path, videos: Path | None = None) -> tuple[str, ...]:
    """Return the splits with a labelled Kinetics list; ``test``, which few have, only with its own folder."""
    base = root if videos is None else videos
    return tuple(
        split for split in SPLITS if _lists(root, split) and (split != "test" or _folder(base, split) is not None)
    )


def read_kinetics(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Find the videos of a split of Kinetics that have a file; ``missing`` counts those that have none.

    The classes are those of the training list, sorted by name.

    Args:
        root: Folder with the lists, or with a folder ``annotations`` that has them.
        split: ``train``, ``val`` or ``test``.
        videos: Folder of the videos; ``root`` by default.
        check_files: Whether to leave out videos without a file; else all are listed by their usual name.
        frame_rate: With a rate, folders of frames are videos too: so many frames per second.

    Raises:
        DataError: If a row is malformed, its class is not in the training list, or more than half of the
            videos are left out.
    """
    path = _list(root, split)
    train = path if split == "train" else _list(root, "train")
    classes = tuple(sorted({row["label"] for _, row in read_table(train, _COLUMNS)} - {""}))
    label_of = {name: label for label, name in enumerate(classes)}
    base = root if videos is None else videos
    folder = _folder(base, split) or base
    files = stems(folder, depth=2, frames=frame_rate is not None)
    paths, labels, lines, spans = list[str](), array("i"), array("i"), array("d")
    absent: list[str] = []
    for line, row in read_table(path, _COLUMNS):
        label = label_in(f"{path}, line {line}", row["label"], label_of)
        start, end = _seconds(path, line, row["time_start"]), _seconds(path, line, row["time_end"])
        if not row["youtube_id"] or not 0 <= start < end:
            raise DataError(
                f"{path}, line {line}: youtube_id {row['youtube_id']!r} from {start} to {end} s is not a video"
            )
        name = f"{row['youtube_id']}_{start:06}_{end:06}"
        if name in files:
            paths.append(files[name])
            spans.extend((0, inf))
        elif row["youtube_id"] in files:
            paths.append(files[row["youtube_id"]])
            spans.extend((start, end))
        elif check_files:
            absent.append(name)
            continue
        else:
            paths.append(f"{name}.mp4")
            spans.extend((0, inf))
        labels.append(label)
        lines.append(line)
    _check_missing(path, folder, absent, len(paths))
    return VideoList(
        root=folder,
        paths=paths,
        labels=labels,
        classes=classes,
        source=path,
        lines=lines,
        spans=spans if any(end < inf for end in spans[1::2]) else (),
        missing=len(absent),
        frame_rate=frame_rate,
    )


def _folder(base: Path, split: str) -> Path | None:
    """Return the folder of a split's videos, if it has one."""
    return next((base / name for name in _FOLDERS[split] if (base / name).is_dir()), None)


def _check_missing(path: Path, folder: Path, absent: Sequence[str], found: int) -> None:
    if not absent and not found:
        raise DataError(f"{path}: the list is empty")
    if len(absent) > _MOST_MISSING * (len(absent) + found):
        where = f"such as {folder}/{absent[0]}.mp4 or {folder}/CLASS/{absent[0]}.mp4"
        raise DataError(f"{path}: {len(absent):,} of {len(absent) + found:,} videos have no file, {where}")


def _seconds(path: Path, line: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{path}, line {line}: {text!r} is not a time in whole seconds") from None


def _list(root: Path, split: str) -> Path:
    found = _lists(root, split)
    if not found:
        names = " or ".join(f"{name}.csv" for name in SPLIT_NAMES[split])
        header = ",".join(_COLUMNS)
        raise DataError(f"{root}: no list {names} with columns {header}, there or in annotations")
    if len(found) > 1:
        raise DataError(f"{root}: both {found[0].name} and {found[1].name} list the {split} split: keep one")
    return found[0]


def _lists(root: Path, split: str) -> list[Path]:
    """Return the labelled lists of a split: ``train.csv``, ``kinetics_train.csv``, ``kinetics-700_train.csv``."""
    places = [place for place in (root, root / "annotations") if place.is_dir()]
    return [
        place / name
        for place in places
        for name in names_in(place)
        if name.endswith(".csv") and name[:-4].replace("-", "_").rpartition("_")[2] in SPLIT_NAMES[split]
        if _is_kinetics(place / name)
    ]


def _is_kinetics(path: Path) -> bool:
    """Return whether a CSV file has the columns of Kinetics, including labels."""
    try:
        check_regular(path)
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, csv.Error):
        return False
    return set(_COLUMNS) <= {name.strip() for name in header}
