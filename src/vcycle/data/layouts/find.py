"""Which layout a dataset has, and its videos."""

from __future__ import annotations

from dataclasses import replace

from vcycle.data.layouts.charades import charades_splits, read_charades
from vcycle.data.layouts.files import accepted
from vcycle.data.layouts.folder import folder_splits, read_folder
from vcycle.data.layouts.folds import hmdb51_splits, read_hmdb51, read_ucf101, ucf101_splits
from vcycle.data.layouts.kinetics import kinetics_splits, read_kinetics
from vcycle.data.layouts.layout import AUTO, Layout, LayoutRegistry
from vcycle.data.layouts.lists import list_splits, read_list, read_lists, splits_in_list
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.layouts.ssv2 import read_ssv2, ssv2_splits
from vcycle.data.layouts.videos import VideoList
from vcycle.data.locations import Location, Url, location
from vcycle.data.prepare.names import INDEX
from vcycle.errors import DataError

__all__ = ["LAYOUTS", "layout_of", "read_videos", "splits_of"]

LAYOUTS = LayoutRegistry("layout", "vcycle.layouts.recognition")
"""Layouts of videos, in the order in which they are tried: a folder with the official files of a set is that set."""

for _name, _layout in {
    "charades": Layout(read=read_charades, splits=charades_splits),
    "ssv2": Layout(read=read_ssv2, splits=ssv2_splits),
    "ucf101": Layout(read=read_ucf101, splits=ucf101_splits, folds=3),
    "hmdb51": Layout(read=read_hmdb51, splits=hmdb51_splits, folds=3),
    "kinetics": Layout(read=read_kinetics, splits=kinetics_splits, incomplete=True),
    "list": Layout(read=read_lists, splits=list_splits, general=True),
    "folder": Layout(
        read=read_folder, splits=lambda root: tuple(folder_splits(root)) or ("train", "val"), general=True
    ),
}.items():
    LAYOUTS.register(_name, _layout)


def layout_of(path: Location) -> str:
    """Detect the layout of a dataset by its characteristic files.

    Raises:
        DataError: If there is no such folder or list file.
    """
    path = location(path)
    if path.is_file():
        return "list"
    if isinstance(path, Url) and (path / INDEX).is_file():
        raise DataError(f"{path}: prepared data, which is read from a local disk: copy the folder here first")
    if not path.is_dir():
        raise DataError(f"{path}: no such folder or list file{_why(path)}; {accepted()}")
    return LAYOUTS.recognised(path) or "folder"


def _why(path: Location) -> str:
    """Return why a URL cannot be read, for a message."""
    if isinstance(path, Url):
        try:
            path.details()
        except OSError as error:
            return f" ({error.strerror or error})"
    return ""


def splits_of(path: Location, layout: str = "auto", *, videos: Location | None = None) -> tuple[str, ...]:
    """Return the splits of a dataset, including those cut from another; all for a list without a split column.

    Args:
        path: The list file or folder.
        layout: Layout of the dataset.
        videos: Folder of the videos, if not in ``path``.

    Raises:
        DataError: If there is no such folder or list file.
    """
    path = location(path)
    found = layout_of(path) if layout == AUTO else layout
    if path.is_file():
        return splits_in_list(path) or SPLITS
    return LAYOUTS[found].splits_in(path, videos=videos)


def read_videos(
    path: Location,
    split: str,
    *,
    layout: str = "auto",
    videos: Location | None = None,
    fold: int | None = None,
    val_fraction: float = 0.15,
    check_files: bool = True,
    frame_rate: float | None = None,
) -> VideoList:
    """Find the videos of a split.

    If no layout is given, it is detected, in this order: a list file (used in full for any split, unless it has a split
    column); the official files of Charades, Something-Something V2, UCF101, HMDB51 and Kinetics; layouts that users
    registered; lists ``train.csv``, ``val.csv``, ``test.csv`` (or ``.txt``), optionally with ``classes.txt``; a folder
    per split, each with a folder per class; a folder per class, split by a hash of each file's path. Folders and lists
    of splits may also be called ``Train``, ``valid``, ``validation`` and so on: ``vcycle.data.layouts.splits`` has all
    names.

    Args:
        path: The list file or folder.
        split: ``train``, ``val`` or ``test``.
        layout: Layout of the dataset; the modules of ``vcycle.data.layouts`` show each.
        videos: Folder of the videos, if not in ``path``; not for folders per class.
        fold: Which official fold, of a layout that has some (UCF101, HMDB51: 1 to 3); 1 by default.
        val_fraction: Share of each class that is kept for ``val`` where the dataset has no split of its own.
        check_files: Whether to look for each listed file now: one that is not there is an error, or left out and
            counted where sets lose videos (Kinetics).
        frame_rate: Frames per second of folders of frames, which are then accepted wherever a file is; by default only
            where the layout has them, at its own rate.

    Raises:
        RecipeError: If there is no such layout.
        DataError: If the path or split is missing, a class has no videos, or an annotation is wrong.
    """
    path = location(path)
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: must be one of {', '.join(SPLITS)}")
    recognised = layout_of(path)
    found = recognised if layout == AUTO else layout
    known = LAYOUTS[found]
    if fold is not None and not known.folds:
        have = " and ".join(name for name in LAYOUTS if LAYOUTS[name].folds)
        raise DataError(f"fold={fold}: layout {found} of {path} has no folds, only {have} have")
    if fold is not None and not 1 <= fold <= known.folds:
        raise DataError(f"fold={fold}: must be one of {', '.join(map(str, range(1, known.folds + 1)))}")
    if path.is_file():
        if found != "list":
            raise DataError(f"{path}: a file, but the layout {found} needs a folder")
        return read_list(path, videos, split=split, check_files=check_files, frame_rate=frame_rate)
    if videos is not None and not known.takes("videos"):
        raise DataError(f"{path}: with layout {found}, videos cannot be in another folder: {videos}")
    listed = LAYOUTS.read(
        VideoList,
        found,
        path,
        split,
        videos=videos,
        fold=fold or 1,
        val_fraction=val_fraction,
        check_files=check_files,
        frame_rate=frame_rate,
    )
    return listed if frame_rate is None else replace(listed, frame_rate=frame_rate)  # of any layout
