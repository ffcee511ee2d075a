"""A folder per class, optionally inside a folder per split.

.. code-block:: text

    ROOT/train/CLASS/*.mp4    ROOT/val/CLASS/*.mp4    ROOT/test/CLASS/*.mp4
    ROOT/CLASS/*.mp4

Split folders may have any name known to ``splits``: ``Train``, ``valid``, ``validation``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from vcycle.data.layouts.beside import Beside
from vcycle.data.layouts.files import (
    FRAMES_HINT,
    PICTURES,
    VIDEOS,
    Kind,
    accepted,
    folder_of_frames,
    folders,
    key_of,
    names_in,
)
from vcycle.data.layouts.splits import SPLITS, names_of_splits, split_called, splits_among
from vcycle.data.layouts.videos import Strings, VideoList
from vcycle.data.locations import Location, location
from vcycle.errors import DataError

__all__ = ["folder_splits", "read_folder"]

_LOOK_DOWN = 3
"""Maximum depth to search for the dataset that was probably meant."""


def folder_splits(root: Location) -> dict[str, Location]:
    """Return the split folders by split; empty if there are only class folders, or nothing.

    Raises:
        DataError: If two folders have the same split.
    """
    split_of = {folder.name: split_called(folder.name) for folder in folders(root)}
    known = set(split_of.values())
    if "train" in known and (None not in known or known & {"val", "test"}):
        return {split: root / name for split, name in splits_among(root, {name: name for name in split_of}).items()}
    return {}


def read_folder(
    root: Location, split: str, *, val_fraction: float = 0.15, kind: Kind = VIDEOS, frame_rate: float | None = None
) -> VideoList:
    """Find the videos of a split, or files of another kind, in folders named after their classes.

    The layout is ``root/train/CLASS/*``, ``root/val/CLASS/*`` and ``root/test/CLASS/*``, or ``root/CLASS/*``. In the
    latter, each class is ordered by a hash of its files' paths and cut at the fraction: the split is the same on any
    machine, and adding a file moves at most one other file across the cut.

    Args:
        root: The folder.
        split: ``train``, ``val`` or ``test``.
        val_fraction: Share of each class that is kept for ``val`` where there are no splits.
        kind: What the class folders hold.
        frame_rate: With a rate, a folder in a class folder is a video too: frames, so many per second.

    Raises:
        DataError: For the reasons of ``read_videos``.
    """
    root = location(root)
    if splits := folder_splits(root):
        if split not in splits:
            has = ", ".join(sorted(place.name for place in splits.values()))
            raise DataError(f"{root}: no folder {split}; it has {has}")
        base = splits[split]
        classes = [folder.name for folder in folders(splits["train"])]
        by_class, beside = _files_by_class(base, kind, frames=frame_rate is not None)
        if strangers := sorted(set(by_class) - set(classes)):
            raise DataError(f"{base / strangers[0]}: unknown class: there is no such class in {splits['train']}")
    else:
        base = root
        _check_fraction(val_fraction)
        whole, beside = _files_by_class(root, kind, frames=frame_rate is not None)
        by_class = {name: _keyed_part(name, files, split, val_fraction) for name, files in whole.items()}
        classes = list(by_class)
        if not any(by_class.values()):
            raise DataError(
                f"{root}: no class is large enough for {_share(split, val_fraction, kind)}: the largest has "
                f"{max(map(len, whole.values()))}; make folders train and val instead"
            )
    label_of = {name: label for label, name in enumerate(classes)}
    return VideoList(
        root=base,
        paths=Strings(f"{name}/{file}" for name, files in by_class.items() for file in files),
        labels=array("i", (label_of[name] for name, files in by_class.items() for _ in files)),
        classes=tuple(classes),
        source=base,
        frame_rate=1.0 if kind is PICTURES else frame_rate,
        beside=beside.told(),
    )


def _files_by_class(root: Location, kind: Kind, *, frames: bool) -> tuple[dict[str, list[str]], Beside]:
    """Return the files of a kind in each class folder, all sorted, and a record of unused files."""
    beside = Beside(root, kind, frames=frames)
    found = {folder.name: beside.files_in(folder.name) for folder in folders(root)}
    empty = next((name for name, files in found.items() if not files), None)
    if empty is not None:
        if any(split_called(name) and not files for name, files in found.items()):
            raise DataError(
                f"{root / empty}: not a class, as it has no {kind.name}s, and not a split, or not next to a train "
                f"split: splits are called {names_of_splits()}"
            )
        if kind is VIDEOS and any(folder_of_frames(str(below)) for below in folders(root / empty)[:1]):
            raise DataError(f"{root / empty}: the class has no videos, but folders of pictures: {FRAMES_HINT}")
        if (meant := _deeper(root, kind)) is not None:
            raise DataError(
                f"{root / empty}: the class has no {kind.name}s, but its subfolders have: did you mean {meant}?"
            )
        raise DataError(f"{root / empty}: the class has no {kind.name}s; supported: {' '.join(sorted(kind.suffixes))}")
    beside.outside = kind.among(names_in(root))
    if not found and beside.outside:
        raise DataError(
            f"{root}: its {kind.name}s are not in class folders: give the parent folder, if this is a class itself "
            f"({root.absolute().parent}), or move the {kind.name}s of each class into a folder of its own"
        )
    if not found:
        lists = f", no {', '.join(s + '.csv' for s in SPLITS)}" if kind is VIDEOS else ""
        raise DataError(f"{root}: no class folders with {kind.name}s{lists}; {accepted(kind)}")
    return found, beside


def _deeper(root: Location, kind: Kind) -> Location | None:
    """Return the first nested folder, other than the given one, that looks like a dataset."""
    level = folders(root)
    for _ in range(_LOOK_DOWN):
        for folder in level:
            if folder_splits(folder) or any(kind.among(names_in(below)) for below in folders(folder)):
                return folder
        level = [below for folder in level for below in folders(folder)]
    return None


def _check_fraction(val: float) -> None:
    if not 0 <= val < 1:
        raise DataError(f"val fraction {val:g}: must be at least 0 and below 1")


def _share(split: str, val: float, kind: Kind) -> str:
    """Describe the share of each class that a split takes."""
    share = {"train": 1 - val, "val": val, "test": 0.0}[split]
    return f"a {split} split of {share:g} of its {kind.name}s"


def _keyed_part(name: str, files: Sequence[str], split: str, val: float) -> list[str]:
    """Return the part of one class that belongs to a split, sorted."""
    ranked = sorted(files, key=lambda file: key_of(f"{name}/{file}"))
    cut = round(val * len(files))
    cuts = {"test": slice(0), "val": slice(cut), "train": slice(cut, None)}
    return sorted(ranked[cuts[split]])
