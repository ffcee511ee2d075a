"""Finds and reads clips for super-resolution: image folders and videos, behind the ``ClipStore`` protocol."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts import VIDEO_SUFFIXES
from vcycle.data.pictures import PICTURE_SUFFIXES, picture_size, read_picture
from vcycle.data.recent import Recent
from vcycle.data.source import Box
from vcycle.data.video import VideoError, VideoIndex, probe, read_frames
from vcycle.errors import DataError
from vcycle.utils.reading import resolved
from vcycle.utils.units import counted

__all__ = ["ClipInfo", "ClipStore", "PartOfClips", "PictureClips", "VideoClips", "find_clips"]

_SUFFIXES = tuple(sorted(PICTURE_SUFFIXES))
_VIDEOS = VIDEO_SUFFIXES - {".gif"}  # 256 colors, dithered, are no ground truth


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipInfo:
    """Length and size of a clip."""

    frames: int
    height: int
    width: int


class ClipStore(Protocol):
    """Reads frames of clips. ``info`` and ``read`` raise ``VideoError`` for an unusable clip."""

    names: Sequence[str]
    """One per clip, in order."""

    def __len__(self) -> int:
        """Number of clips."""
        ...

    def path(self, item: int) -> Path:
        """The file or folder of a clip, for messages."""
        ...

    def info(self, item: int) -> ClipInfo:
        """Length and size of a clip."""
        ...

    def read(self, item: int, frames: Sequence[int], box: Box | None = None) -> NDArray[np.uint8]:
        """Frames by number, whole or the box (top, left, height, width) of each: ``(T, h, w, 3)``."""
        ...


class PartOfClips:
    """Some clips of a store, in an order of their own."""

    def __init__(self, whole: ClipStore, items: Sequence[int]) -> None:
        """Take clips of a store.

        Args:
            whole: The store.
            items: Their indexes in it.
        """
        self._whole, self._items = whole, tuple(items)
        self.names: Sequence[str] = [whole.names[item] for item in items]

    def __len__(self) -> int:
        """Number of clips."""
        return len(self._items)

    def path(self, item: int) -> Path:
        """The file or folder of a clip, for messages."""
        return self._whole.path(self._items[item])

    def info(self, item: int) -> ClipInfo:
        """Length and size of a clip."""
        return self._whole.info(self._items[item])

    def read(self, item: int, frames: Sequence[int], box: Box | None = None) -> NDArray[np.uint8]:
        """Frames by number, as the whole store reads them."""
        return self._whole.read(self._items[item], frames, box)


def find_clips(path: Path) -> ClipStore:
    """Find the clips under a path: image folders or videos.

    A folder that holds images (PNG, JPEG) is a clip; a path may be such a folder, or hold any number at any depth. If
    there is none, each video file is a clip.

    Raises:
        DataError: if the path is missing, or holds neither images nor videos, or both.
    """
    path = Path(path)
    if path.is_file():
        return VideoClips(path.parent, [path.name])
    if not path.is_dir():
        raise DataError(f"{path}: no such folder or video")
    folders: list[str] = []
    videos: list[str] = []
    _look(path, "", frozenset(), folders, videos)
    if folders and videos:
        raise DataError(
            f"{path}: {counted(len(folders), 'folder')} of pictures, such as {path / min(folders)}, and "
            f"{counted(len(videos), 'video')}, such as {path / min(videos)}: keep clips of one kind in it"
        )
    if folders == [""]:
        path = resolved(path)
        return PictureClips(path.parent, [path.name])
    if folders:
        return PictureClips(path, sorted(folders, key=_natural))
    if videos:
        return VideoClips(path, sorted(videos, key=_natural))
    raise DataError(f"{path}: no pictures ({' '.join(_SUFFIXES)}) and no videos in it or below it")


class PictureClips:
    """Clips that are folders of numbered images, in numerical order (2 before 10)."""

    def __init__(self, root: Path, names: Sequence[str], *, shown: Sequence[str] | None = None) -> None:
        """Read the folders ``root/name``.

        Args:
            root: The root folder.
            names: Clip folders, relative to the root.
            shown: Names of the clips, if they differ from the folders.
        """
        self.root = root
        self.folders = tuple(names)
        self.names: Sequence[str] = self.folders if shown is None else tuple(shown)
        self._listed = Recent(self._list)

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.folders)

    def path(self, item: int) -> Path:
        """Folder of a clip."""
        return self.root / self.folders[item]

    def info(self, item: int) -> ClipInfo:
        """Length of a clip, and the size of its first picture."""
        return self._listed(item)[1]

    def read(self, item: int, frames: Sequence[int], box: Box | None = None) -> NDArray[np.uint8]:
        """Decode pictures by number."""
        files, info = self._listed(item)
        top, left, height, width = box or (0, 0, info.height, info.width)
        pixels = np.empty((len(frames), height, width, 3), dtype=np.uint8)
        for into, frame in zip(pixels, frames, strict=True):
            path = self.path(item) / files[frame]
            picture = read_picture(path)
            if picture.shape[:2] != (info.height, info.width):
                size = f"{picture.shape[1]} × {picture.shape[0]}"
                raise VideoError(str(path), f"{size} pixels, where {files[0]} has {info.width} × {info.height}")
            into[:] = picture[top : top + height, left : left + width]
        return pixels

    def _list(self, item: int) -> tuple[tuple[str, ...], ClipInfo]:
        files = _numbered(self.path(item))
        height, width = picture_size(self.path(item) / files[0])
        return files, ClipInfo(frames=len(files), height=height, width=width)


class VideoClips:
    """Clips that are video files."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        """Read the files ``root/name``."""
        self.root = root
        self.names: Sequence[str] = tuple(names)
        self._index = Recent(self._probe)

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.names)

    def path(self, item: int) -> Path:
        """File of a clip."""
        return self.root / self.names[item]

    def info(self, item: int) -> ClipInfo:
        """Length and displayed size of a video."""
        info = self._index(item).info
        return ClipInfo(frames=info.frames, height=info.height, width=info.width)

    def read(self, item: int, frames: Sequence[int], box: Box | None = None) -> NDArray[np.uint8]:
        """Decode frames by number. A missing frame makes the clip unusable: its replacement would be wrong data."""
        pixels, filled = read_frames(self._index(item), frames, crop=box)
        if filled.any():
            raise VideoError(str(self.path(item)), f"{int(filled.sum())} of {len(frames)} frames cannot be decoded")
        return pixels

    def _probe(self, item: int) -> VideoIndex:
        return probe(str(self.path(item)))


def _look(root: Path, name: str, above: frozenset[str], folders: list[str], videos: list[str]) -> None:
    """Collect the folders with pictures and the videos below a folder, by name from the root."""
    folder = root / name
    real = os.path.realpath(folder)
    if real in above:  # a link to a folder above it
        return
    pictures = False
    try:
        with os.scandir(folder) as entries:
            seen = [(entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
    for below, is_folder in seen:
        inside = f"{name}/{below}" if name else below
        if is_folder:
            _look(root, inside, above | {real}, folders, videos)
        elif below.lower().endswith(_SUFFIXES):
            pictures = True
        elif Path(below).suffix.lower() in _VIDEOS:
            videos.append(inside)
    if pictures:
        folders.append(name)


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by value."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _numbered(folder: Path) -> tuple[str, ...]:
    """Names of a folder's pictures in order; a number that is left out, or given twice, is refused."""
    try:
        found = [name for name in os.listdir(folder) if name.lower().endswith(_SUFFIXES) and name[0] != "."]
    except OSError as error:
        raise VideoError(str(folder), error.strerror or str(error)) from error
    if not found:
        raise VideoError(str(folder), f"no pictures ({' '.join(_SUFFIXES)})")
    files = tuple(sorted(found, key=_natural))
    steps = [after - before for before, after in pairwise(_frame_numbers(files))]
    if len(files) < 3 or not steps:
        return files
    if 0 in steps:
        twice = steps.index(0)
        raise VideoError(str(folder), f"pictures {files[twice]} and {files[twice + 1]} have one number")
    odd = next((place for place, step in enumerate(steps) if step != min(steps)), None)
    if odd is not None:
        raise VideoError(str(folder), f"pictures are missing between {files[odd]} and {files[odd + 1]}")
    return files


def _frame_numbers(files: Sequence[str]) -> list[int]:
    """The last number in each name that is not the same in all (``0007x4.png``); none where there is no such number."""
    numbers = [re.findall(r"\d+", Path(name).stem) for name in files]
    if len({len(each) for each in numbers}) != 1:
        return []
    counted = [column for column in zip(*numbers, strict=True) if len({int(each) for each in column}) > 1]
    return [int(each) for each in counted[-1]] if counted else []
