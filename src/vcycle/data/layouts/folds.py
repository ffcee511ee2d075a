"""UCF101 and HMDB51: three official folds of training and test lists.

.. code-block:: text

    ROOT/ucfTrainTestlist/classInd.txt                               1 ApplyEyeMakeup
    ROOT/ucfTrainTestlist/trainlist01.txt .. trainlist03.txt         ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1
    ROOT/ucfTrainTestlist/testlist01.txt .. testlist03.txt           ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi
    ROOT/UCF-101/ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi

    ROOT/testTrainMulti_7030_splits/CLASS_test_split1.txt .. CLASS_test_split3.txt    VIDEO.avi 1
    ROOT/hmdb51_org/CLASS/VIDEO.avi                                                   or ROOT/videos, or ROOT

A list of HMDB51 says 1 for training, 2 for testing, 0 for neither. Neither set has a validation split, so a hashed
share of the training clips is kept for it, by whole films: clips cut from one film (``g08``,
``April_09_brush_hair_...``) would leak between splits.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vcycle.data.layouts.files import (
    check_file,
    classes_in_lines,
    cut_groups,
    first_folder,
    label_in,
    names_in,
    read_text,
)
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["hmdb51_splits", "read_hmdb51", "read_ucf101", "ucf101_splits"]

_UCF101_FOLDERS = ("UCF-101", "UCF101", "videos")
_UCF101_LISTS = ("ucfTrainTestlist", "annotations")
_HMDB51_FOLDERS = ("hmdb51_org", "HMDB51", "videos")
_HMDB51_LISTS = ("testTrainMulti_7030_splits", "annotations")
_END = "_test_split"
_GROUP = re.compile(r"(.*_g\d+)_c\d+")
# Suffix of the file names: visible parts of the body, camera motion, number of people, side, quality, number.
_FILM = re.compile(r"(.*)_[a-z]_[a-z]{2}_np\d+_[a-z]{2}_[a-z]{3}_\d+\.\w+\Z")


class _Row(NamedTuple):
    """One clip: ``CLASS/VIDEO``, its label, and where it is listed."""

    video: str
    label: int
    origin: str
    line: int


def ucf101_splits(root: Path) -> tuple[str, ...]:
    """Return all splits if a folder has the lists of UCF101, else none."""
    return SPLITS if (first_folder(root, _UCF101_LISTS) / "classInd.txt").is_file() else ()


def hmdb51_splits(root: Path) -> tuple[str, ...]:
    """Return all splits if a folder has the lists of HMDB51, else none."""
    lists = names_in(first_folder(root, _HMDB51_LISTS))
    return SPLITS if any(name.endswith(f"{_END}1.txt") for name in lists) else ()


def read_ucf101(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    fold: int = 1,
    val_fraction: float = 0.15,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Find the videos of a split of UCF101.

    Args:
        root: Folder with the folder of lists, or that folder.
        split: ``train``, ``val`` or ``test``.
        videos: Folder of the class folders; found under ``root`` by default.
        fold: Official fold, from 1 to 3.
        val_fraction: Share of each class's training clips to keep for ``val``.
        check_files: Whether to check that each listed file exists.
        frame_rate: With a rate, folders of frames are videos too, named without suffix: so many frames per second.

    Raises:
        DataError: If a list is missing or malformed, or a checked file is missing.
    """
    lists = first_folder(root, _UCF101_LISTS)
    classes = classes_in_lines(lists / "classInd.txt", first=1)
    path = lists / f"{'test' if split == 'test' else 'train'}list{fold:02}.txt"
    rows = _of_split(_ucf101_rows(path, classes), split, _GROUP, val_fraction, path)
    return _videos(rows, classes, path, videos or first_folder(root, _UCF101_FOLDERS), check_files, frame_rate)


def read_hmdb51(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    fold: int = 1,
    val_fraction: float = 0.15,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Find the videos of a split of HMDB51; arguments and errors are those of ``read_ucf101``."""
    lists = first_folder(root, _HMDB51_LISTS)
    end = f"{_END}{fold}.txt"
    classes = tuple(name.removesuffix(end) for name in names_in(lists) if name.endswith(end))
    if not classes:
        raise DataError(f"{lists}: no lists CLASS{end}")
    use = "2" if split == "test" else "1"
    listed = (
        row for label, name in enumerate(classes) for row in _hmdb51_rows(label, name, lists / f"{name}{end}", use)
    )
    rows = _of_split(listed, split, _FILM, val_fraction, lists)
    return _videos(rows, classes, lists, videos or first_folder(root, _HMDB51_FOLDERS), check_files, frame_rate)


def _ucf101_rows(path: Path, classes: Sequence[str]) -> Iterator[_Row]:
    """Yield the lines of a list; training lists also have the label."""
    label_of = {name: label for label, name in enumerate(classes)}
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        video, _, given = text.strip().partition(" ")
        origin = f"{path}, line {number}"
        if video.count("/") != 1 or (given and not given.strip().isdecimal()):
            raise DataError(f"{origin}: {text!r} is not 'CLASS/VIDEO' and perhaps a label")
        label = label_in(origin, video.partition("/")[0], label_of)
        if given and given.strip() != str(label + 1):
            raise DataError(f"{origin}: label {given.strip()} does not match {video}: expected {label + 1}")
        yield _Row(video, label, origin, number)


def _hmdb51_rows(label: int, name: str, path: Path, use: str) -> Iterator[_Row]:
    """Yield the lines of a class's list that have a use."""
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        video, _, given = text.strip().rpartition(" ")
        if not video.strip() or given not in ("0", "1", "2"):
            raise DataError(f"{path}, line {number}: {text!r} is not 'VIDEO' and 0, 1 or 2")
        if given == use:
            yield _Row(f"{name}/{video.strip()}", label, f"{path}, line {number}", number)


def _of_split(
    listed: Iterable[_Row], split: str, films: re.Pattern[str], val_fraction: float, source: Path
) -> Sequence[_Row]:
    """Divide the training clips between ``train`` and ``val``: by class, without splitting a film."""
    rows = list(listed)
    if split != "test":
        film = {row.video: matched[1] if (matched := films.match(row.video)) else row.video for row in rows}
        by_class: dict[int, Counter[str]] = {}
        for row in rows:
            by_class.setdefault(row.label, Counter())[film[row.video]] += 1
        kept = {name for groups in by_class.values() for name in cut_groups(groups, val_fraction)}
        rows = [row for row in rows if (film[row.video] in kept) == (split == "val")]
    if not rows:
        raise DataError(f"{source}: no videos left for {split} with val fraction {val_fraction:g}")
    return rows


def _videos(
    rows: Sequence[_Row],
    classes: tuple[str, ...],
    source: Path,
    folder: Path,
    check_files: bool,
    frame_rate: float | None,
) -> VideoList:
    paths = [row.video for row in rows]
    if frame_rate is not None:
        whole = [os.path.splitext(path)[0] for path in paths]
        paths = [one if (folder / one).is_dir() else path for one, path in zip(whole, paths, strict=True)]
    if check_files:
        for row, path in zip(rows, paths, strict=True):
            check_file(row.origin, folder / path, frames=frame_rate is not None)
    return VideoList(
        root=folder,
        paths=paths,
        labels=[row.label for row in rows],
        classes=classes,
        source=source,
        lines=[row.line for row in rows] if source.is_file() else (),  # HMDB51 has a list per class
        frame_rate=frame_rate,
    )
