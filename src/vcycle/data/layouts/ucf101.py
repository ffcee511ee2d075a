"""UCF101: three official folds of training and test lists.

.. code-block:: text

    ROOT/ucfTrainTestlist/classInd.txt                               1 ApplyEyeMakeup
    ROOT/ucfTrainTestlist/trainlist01.txt .. trainlist03.txt         ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1
    ROOT/ucfTrainTestlist/testlist01.txt .. testlist03.txt           ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi
    ROOT/UCF-101/ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi

The set has no validation split, so a hashed share of the training list is kept for it, by whole groups of clips. The
clips of a group (``g08``) are cut from one film, and would leak between splits.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from vcycle.data.layouts.files import (
    check_file,
    classes_in_lines,
    cut_groups,
    first_folder,
    label_in,
    read_text,
)
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["read_ucf101", "ucf101_splits"]

_FOLDERS = ("UCF-101", "UCF101", "videos")
_LISTS = ("ucfTrainTestlist", "annotations")
_GROUP = re.compile(r"(.*_g\d+)_c\d+")


def ucf101_splits(root: Path) -> tuple[str, ...]:
    """Return all splits if a folder has the lists of UCF101, else none."""
    return SPLITS if (_lists(root) / "classInd.txt").is_file() else ()


def read_ucf101(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    fold: int = 1,
    val_fraction: float = 0.2,
    check_files: bool = True,
) -> VideoList:
    """Find the videos of a split of UCF101.

    Args:
        root: Folder with the folder of lists, or that folder.
        split: ``train``, ``val`` or ``test``.
        videos: Folder of the class folders; found under ``root`` by default.
        fold: Official fold, from 1 to 3.
        val_fraction: Share of each class's training list to keep for ``val``.
        check_files: Whether to check that each listed file exists.

    Raises:
        DataError: If a list is missing or malformed, or a checked file is missing.
    """
    lists = _lists(root)
    classes = classes_in_lines(lists / "classInd.txt", first=1)
    label_of = {name: label for label, name in enumerate(classes)}
    folder = videos or first_folder(root, _FOLDERS)
    path = lists / f"{'test' if split == 'test' else 'train'}list{fold:02}.txt"
    rows = list(_rows(path))
    if split != "test":
        kept = _kept_for_validation([video for _, video, _ in rows], val_fraction)
        rows = [row for row in rows if (_group(row[1]) in kept) == (split == "val")]
    labels: list[int] = []
    for line, video, given in rows:
        origin = f"{path}, line {line}"
        labels.append(label_in(origin, video.partition("/")[0], label_of))
        if given not in ("", str(labels[-1] + 1)):
            raise DataError(f"{origin}: label {given} does not match {video}: expected {labels[-1] + 1}")
        if check_files:
            check_file(origin, folder / video)
    if not rows:
        raise DataError(f"{path}: no videos left for {split} with val fraction {val_fraction:g}")
    return VideoList(
        root=folder,
        paths=[video for _, video, _ in rows],
        labels=labels,
        classes=classes,
        source=path,
        lines=[line for line, _, _ in rows],
    )


def _lists(root: Path) -> Path:
    return first_folder(root, _LISTS)


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, video and label (empty in test lists) of each line."""
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        video, _, label = text.strip().partition(" ")
        if video.count("/") != 1 or (label and not label.strip().isdecimal()):
            raise DataError(f"{path}, line {number}: {text!r} is not 'CLASS/VIDEO' and perhaps a label")
        yield number, video, label.strip()


def _group(video: str) -> str:
    """Return the group of a clip, shared by clips cut from the same film."""
    matched = _GROUP.match(video)
    return matched[1] if matched else video


def _kept_for_validation(videos: list[str], fraction: float) -> set[str]:
    by_class: dict[str, Counter[str]] = {}
    for video in videos:
        by_class.setdefault(video.partition("/")[0], Counter())[_group(video)] += 1
    return {group for groups in by_class.values() for group in cut_groups(groups, fraction)}
