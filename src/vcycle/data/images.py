"""Videos stored as folders of pictures, or single pictures: a frame source that decodes only what a clip needs.

Video files among them are decoded as such, so a list may have both.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.locations import local_path
from vcycle.data.pictures import PICTURE_SUFFIXES, decode_picture, holds_pictures, picture_size
from vcycle.data.recent import Recent
from vcycle.data.source import FileSource, Frames, Shown, resample
from vcycle.data.video import VideoError
from vcycle.data.video.scaling import Scaler
from vcycle.errors import DataError

if TYPE_CHECKING:
    from av import VideoFrame

    from vcycle.data.video.kept import KeptIndexes

__all__ = ["ImageSource"]

_NUMBER = re.compile(r"(\d+)")
_ITSELF = [""]
"""The names of a video that is a single picture: relative to its own path."""


class _Folder(NamedTuple):
    """The pictures of one video, in order."""

    names: list[str]
    info: VideoInfo


class ImageSource:
    """Decodes frames from folders of pictures, one folder per video; a picture file is a video of one frame.

    Pictures are ordered by the numbers in their names and shown at ``frame_rate`` of the list. All are shown at the
    size of the first. A picture that cannot be decoded repeats the one before it. A video file is decoded as by
    ``FileSource``.
    """

    def __init__(self, videos: VideoList, *, kept: KeptIndexes | None = None) -> None:
        """Create the source of a list of folders.

        Args:
            videos: The folders, pictures and files.
            kept: Persistent store of the files' indexes; none by default.

        Raises:
            DataError: If the list has no frame rate.
        """
        if not videos.frame_rate:
            raise DataError(f"{videos.source}: frame_rate={videos.frame_rate}: folders of pictures need a rate above 0")
        self.videos = videos
        self._rate = videos.frame_rate
        self._folders = Recent(self._look_into)
        self._files = FileSource(videos, kept=kept)

    def info(self, item: int) -> VideoInfo:
        """Return the times and size of a video."""
        found = self._folders(item)
        return self._files.info(item) if found is None else found.info

    def read(self, item: int, frames: NDArray[np.int64], **how: Unpack[Shown]) -> Frames:
        """Decode frames by number; see ``FileSource.read``."""
        found = self._folders(item)
        if found is None:
            return self._files.read(item, frames, **how)
        names, info = found
        folder = self._folder(item)
        size = how["resized"] if how["antialias"] else (info.height, info.width)
        wanted, places = np.unique(frames, return_inverse=True)
        pixels = np.empty((len(wanted), *size, 3), dtype=np.uint8)
        good = np.zeros(len(wanted), dtype=np.bool_)
        scale = Scaler()
        for place, number in enumerate(wanted.tolist()):
            picture = _decoded(folder / names[number])
            if picture is not None:
                good[place] = True
                pixels[place] = scale(picture, *size).to_ndarray()
        if not good.any():
            if names == _ITSELF:
                decode_picture(folder)  # raises the cause
            raise VideoError(str(folder), f"none of {len(wanted)} pictures can be decoded, such as {names[wanted[0]]}")
        # A bad picture repeats the last good one before it, or the first good one of all.
        shown = np.maximum.accumulate(np.where(good, np.arange(len(wanted)), np.argmax(good)))
        clip = torch.from_numpy(pixels[shown[places]])
        filled = int((~good[places]).sum())
        if not how["antialias"]:
            return Frames(resample(clip, **how), filled)
        top, left, height, width = how["crop"]
        part, out = clip[:, top : top + height, left : left + width], how.get("out")
        return Frames(part.contiguous() if out is None else out.copy_(part), filled)

    def _folder(self, item: int) -> Path:
        return local_path(str(self.videos.path(item)), "a folder of pictures")

    def _look_into(self, item: int) -> _Folder | None:
        """Return the pictures of a video; None for a video file."""
        if not holds_pictures(str(self.videos.path(item))):
            return None
        return _look_into(self._folder(item), self._rate)


def _look_into(folder: Path, rate: float) -> _Folder:
    if not folder.is_dir():
        return _Folder(_ITSELF, VideoInfo.uniform(1, *picture_size(folder), rate))
    try:
        names = [name for name in os.listdir(folder) if _suffix(name) in PICTURE_SUFFIXES and not name.startswith(".")]
    except OSError as error:
        raise VideoError(str(folder), error.strerror or "cannot be read") from error
    names.sort(key=_in_order)
    first = next((picture for name in names if (picture := _decoded(folder / name)) is not None), None)
    if first is None:
        some = f"none of {len(names)} pictures can be decoded" if names else "no pictures"
        raise VideoError(str(folder), f"{some}; supported: {' '.join(sorted(PICTURE_SUFFIXES))}")
    return _Folder(names, VideoInfo.uniform(len(names), first.height, first.width, rate))


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _in_order(name: str) -> tuple[list[int], str]:
    """Return a sort key that orders names by the numbers in them, whatever their number of digits."""
    return [int(number) for number in _NUMBER.findall(name)], name


def _decoded(path: Path) -> VideoFrame | None:
    """Decode a picture; None if it is missing or damaged."""
    try:
        return decode_picture(path)
    except VideoError:
        return None
