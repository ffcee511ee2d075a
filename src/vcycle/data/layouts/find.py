"""Detects the layout of a dataset, and reads its videos."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, get_args

from vcycle.data.layouts.charades import charades_splits, read_charades
from vcycle.data.layouts.folder import folder_splits, read_folder
from vcycle.data.layouts.hmdb51 import hmdb51_splits, read_hmdb51
from vcycle.data.layouts.kinetics import kinetics_splits, read_kinetics
from vcycle.data.layouts.lists import list_splits, read_list, read_lists, splits_in_list
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.layouts.ssv2 import read_ssv2, ssv2_splits
from vcycle.data.layouts.ucf101 import read_ucf101, ucf101_splits
from vcycle.data.layouts.videos import VideoList
from vcycle.errors import DataError

__all__ = ["FOLDS", "LayoutName", "layout_of", "read_videos", "splits_of"]

LayoutName = Literal["auto", "folder", "list", "kinetics", "ssv2", "charades", "ucf101", "hmdb51"]

FOLDS = (1, 2, 3)
"""Folds of the datasets that have them."""

# In detection order: a folder with the official files of a dataset has that layout.
_SPLITS: dict[LayoutName, Callable[[Path], Iterable[str]]] = {
    "charades": charades_splits,
    "ssv2": ssv2_splits,
    "ucf101": ucf101_splits,
    "hmdb51": hmdb51_splits,
    "kinetics": kinetics_splits,
    "list": list_splits,
    "folder": folder_splits,
}
_FOLDED: tuple[LayoutName, ...] = ("ucf101", "hmdb51")


def layout_of(path: Path) -> LayoutName:
    """Detect the layout of a dataset by its characteristic files.

    Raises:
        DataError: If there is no such folder or list file.
    """
    path = Path(path)
    if path.is_file():
        return "list"
    if not path.is_dir():
        raise DataError(f"{path}: no such folder or list file")
    return next((name for name, splits in _SPLITS.items() if splits(path)), "folder")


def splits_of(path: Path, layout: LayoutName = "auto", *, videos: Path | None = None) -> tuple[str, ...]:
    """Return the splits of a dataset, including those cut from another; empty for a list without a split column.

    Args:
        path: The list file or folder.
        layout: Layout of the dataset.
        videos: Folder of the videos, if not in ``path``.

    Raises:
        DataError: If there is no such folder or list file.
    """
    path = Path(path)
    found = layout_of(path) if layout == "auto" else layout
    if path.is_file():
        return splits_in_list(path) or SPLITS
    if found == "kinetics":
        return kinetics_splits(path, videos)
    return tuple(_SPLITS[found](path)) or (("train", "val") if found == "folder" else ())


def read_videos(
    path: Path,
    split: str,
    *,
    layout: LayoutName = "auto",
    videos: Path | None = None,
    fold: int | None = None,
    val_fraction: float = 0.2,
    check_files: bool = True,
) -> VideoList:
    """Find the videos of a split.

    If no layout is given, it is detected, in this order: a list file (used in full for any split, unless it has a split
    column); the official files of Charades, Something-Something V2, UCF101, HMDB51 and Kinetics; lists ``train.csv``,
    ``val.csv``, ``test.csv`` (or ``.txt``), optionally with ``classes.txt``; a folder per split, each with a folder per
    class; a folder per class, split by a hash of each file's path. Folders and lists of splits may also be called
    ``Train``, ``valid``, ``validation`` and so on: ``vcycle.data.layouts.splits`` has all names.

    Args:
        path: The list file or folder.
        split: ``train``, ``val`` or ``test``.
        layout: Layout of the dataset; the modules of ``vcycle.data.layouts`` show each.
        videos: Folder of the videos, if not in ``path``; not for folders per class.
        fold: Official fold of UCF101 or HMDB51, from 1 to 3; 1 by default.
        val_fraction: Share of each class to keep for ``val`` if the dataset has no such split.
        check_files: Whether to check that each listed file exists: a missing one is an error or, for sets that lose
            videos (Kinetics), left out and counted.

    Raises:
        DataError: If the path or split is missing, a class has no videos, or an annotation is wrong.
    """
    path = Path(path)
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: must be one of {', '.join(SPLITS)}")
    if layout not in get_args(LayoutName):
        raise DataError(f"layout={layout!r}: must be one of {', '.join(get_args(LayoutName))}")
    recognised = layout_of(path)
    found = recognised if layout == "auto" else layout
    if fold is not None and found not in _FOLDED:
        raise DataError(f"fold={fold}: layout {found} of {path} has no folds, only {' and '.join(_FOLDED)} have")
    if fold not in (None, *FOLDS):
        raise DataError(f"fold={fold}: must be one of {', '.join(map(str, FOLDS))}")
    if path.is_file():
        if found != "list":
            raise DataError(f"{path}: a file, but the layout {found} needs a folder")
        return read_list(path, videos, split=split, check_files=check_files)
    if found == "folder":
        if videos is not None:
            raise DataError(f"{path}: with a folder per class, videos cannot be in another folder: {videos}")
        return read_folder(path, split, val_fraction=val_fraction)
    if found == "list":
        return read_lists(path, split, videos=videos, check_files=check_files)
    splits = splits_of(path, found, videos=videos)
    if split not in splits:
        has = f"it has {', '.join(splits)}" if splits else "it has none of the dataset's lists"
        raise DataError(f"{path}: no labelled {split} split for layout {found}; {has}")
    if found in _FOLDED:
        read = read_ucf101 if found == "ucf101" else read_hmdb51
        return read(path, split, videos=videos, fold=fold or 1, val_fraction=val_fraction, check_files=check_files)
    readers = {"kinetics": read_kinetics, "ssv2": read_ssv2, "charades": read_charades}
    return readers[found](path, split, videos=videos, check_files=check_files)
