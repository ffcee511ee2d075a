"""HMDB51: three official folds, with a list per class and fold.

.. code-block:: text

    ROOT/testTrainMulti_7030_splits/CLASS_test_split1.txt .. CLASS_test_split3.txt    VIDEO.avi 1
    ROOT/hmdb51_org/CLASS/VIDEO.avi                                                   or ROOT/videos, or ROOT

A list says 1 for training, 2 for testing, 0 for neither. The set has no validation split, so a hashed share of the
training clips is kept for it, by whole films: clips cut from one film (``April_09_brush_hair_...``) would leak between
splits.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vcycle.data.layouts.files import check_file, cut_groups, first_folder, names_in, read_text
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["hmdb51_splits", "read_hmdb51"]

_FOLDERS = ("hmdb51_org", "HMDB51", "videos")
_LISTS = ("testTrainMulti_7030_splits", "annotations")
_END = "_test_split"
_USES = {"0": "", "1": "train", "2": "test"}
# Suffix of the file names: visible parts of the body, camera motion, number of people, side, quality, number.
_FILM = re.compile(r"(.*)_[a-z]_[a-z]{2}_np\d+_[a-z]{2}_[a-z]{3}_\d+\.\w+")


class _Row(NamedTuple):
    """One clip; every class has its own list."""

    label: int
    path: Path
    line: int
    video: str
    use: str


def hmdb51_splits(root: Path) -> tuple[str, ...]:
    """Return all splits if a folder has the lists of HMDB51, else none."""
    return SPLITS if any(name.endswith(f"{_END}1.txt") for name in names_in(first_folder(root, _LISTS))) else ()


def read_hmdb51(
    root: Path,
    split: str,
    *,
    videos: Path | None = None,
    fold: int = 1,
    val_fraction: float = 0.2,
    check_files: bool = True,
) -> VideoList:
    """Find the videos of a split of HMDB51.

    Args:
        root: Folder with the folder of lists, or that folder.
        split: ``train``, ``val`` or ``test``.
        videos: Folder of the class folders; found under ``root`` by default.
        fold: Official fold, from 1 to 3.
        val_fraction: Share of each class's training clips to keep for ``val``.
        check_files: Whether to check that each listed file exists.

    Raises:
        DataError: If a list is missing or malformed, or a checked file is missing.
    """
    lists = first_folder(root, _LISTS)
    end = f"{_END}{fold}.txt"
    classes = tuple(name.removesuffix(end) for name in names_in(lists) if name.endswith(end))
    if not classes:
        raise DataError(f"{lists}: no lists CLASS{end}")
    folder = videos or first_folder(root, _FOLDERS)
    rows: list[_Row] = []
    for label, name in enumerate(classes):
        of_class = [row for row in _rows(label, name, lists / f"{name}{end}") if row.use]
        if split != "test":
            training = [row for row in of_class if row.use == "train"]
            kept = cut_groups(Counter(_film(row.video) for row in training), val_fraction)
            of_class = [row._replace(use="val") if _film(row.video) in kept else row for row in training]
        rows += [row for row in of_class if row.use == split]
    if check_files:
        for row in rows:
            check_file(f"{row.path}, line {row.line}", folder / row.video)
    if not rows:
        raise DataError(f"{lists}: no videos left for {split} with val fraction {val_fraction:g}")
    return VideoList(
        root=folder,
        paths=[row.video for row in rows],
        labels=[row.label for row in rows],
        classes=classes,
        source=lists,
    )


def _rows(label: int, name: str, path: Path) -> Iterator[_Row]:
    for number, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip():
            continue
        video, _, use = text.strip().rpartition(" ")
        if not video.strip() or use not in _USES:
            raise DataError(f"{path}, line {number}: {text!r} is not 'VIDEO' and 0, 1 or 2")
        yield _Row(label, path, number, f"{name}/{video.strip()}", _USES[use])


def _film(video: str) -> str:
    """Return the film that a clip is cut from."""
    matched = _FILM.fullmatch(video)
    return matched[1] if matched else video
