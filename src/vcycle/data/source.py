"""Frame sources: the protocol, and its implementation for video files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NotRequired, Protocol, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.recent import Recent
from vcycle.data.video import VideoIndex, probe, read_frames

if TYPE_CHECKING:
    from vcycle.data.video.kept import KeptIndexes

__all__ = [
    "Box",
    "FileSource",
    "FrameSource",
    "Frames",
    "PartSource",
    "Shown",
    "part_shown",
    "read_clip",
    "resample",
    "resize",
]

Box = tuple[int, int, int, int]

_RESIZED_AS_THEY_ARE = (torch.uint8, torch.float32, torch.float64)
"""Pixel types that torch resizes natively on a CPU; others are resized as float32."""


class Frames(NamedTuple):
    """Frames of one video in the requested order, as a ``FrameSource`` returns them."""

    pixels: Tensor
    """uint8 ``(T, h, w, 3)``, RGB."""

    filled: int
    """Number of frames that could not be decoded and repeat the one before."""


class Shown(TypedDict):
    """The keyword arguments of ``FrameSource.read``, which says what they are."""

    resized: tuple[int, int]
    crop: Box
    antialias: bool
    out: NotRequired[Tensor | None]


class FrameSource(Protocol):
    """The interface through which a dataset reads frames: another decoder or store implements it.

    Both methods raise ``VideoError`` for an unusable video. They are called in worker processes, which are forks of the
    process that made the source: files and connections are opened in the methods.
    """

    def info(self, item: int) -> VideoInfo:
        """Return the times and displayed size of a video.

        Args:
            item: Number of the video in the dataset's list.
        """
        ...

    def read(
        self,
        item: int,
        frames: NDArray[np.int64],
        *,
        resized: tuple[int, int],
        crop: Box,
        antialias: bool,
        out: Tensor | None = None,
    ) -> Frames:
        """Read frames by number.

        Args:
            item: Number of the video in the dataset's list.
            frames: Frame numbers in display order, from 0; they may be unsorted and repeat.
            resized: Height and width of the whole resized picture.
            crop: Top, left, height and width of the crop in the resized picture.
            antialias: Whether to average over the pixels between samples where the picture shrinks.
            out: Where to write the pixels, if given: uint8 ``(T, height, width, 3)``, contiguous, not initialised.

        Returns:
            The frames in the requested order, uint8 ``(T, height, width, 3)``; this is ``out`` if it is given.
        """
        ...


class PartSource:
    """Some videos of a frame source, in an order of their own."""

    def __init__(self, whole: FrameSource, items: Sequence[int]) -> None:
        """Take videos of a source.

        Args:
            whole: The source.
            items: Their indexes in it.
        """
        self._whole, self._items = whole, tuple(items)

    def info(self, item: int) -> VideoInfo:
        """Return the times and displayed size of a video."""
        return self._whole.info(self._items[item])

    def read(self, item: int, frames: NDArray[np.int64], **how: Unpack[Shown]) -> Frames:
        """Read frames as the whole source does."""
        return self._whole.read(self._items[item], frames, **how)


def resample(
    pixels: Tensor, resized: tuple[int, int], crop: Box, *, antialias: bool, out: Tensor | None = None
) -> Tensor:
    """Resize and crop a clip efficiently: first cut the part that the crop shows, then resize it.

    Args:
        pixels: ``(T, H, W, C)``, of any type.
        resized: Height and width of the whole resized picture.
        crop: Top, left, height and width in the resized picture.
        antialias: Average over the pixels between samples when shrinking.
        out: Output tensor; a new tensor by default.

    Returns:
        ``(T, height, width, C)``, contiguous.
    """
    rows, columns = part_shown(pixels.shape[1:3], resized, crop)
    return resize(pixels[:, rows, columns], crop[2:], antialias=antialias, out=out)


def part_shown(stored: Sequence[int], resized: tuple[int, int], crop: Box) -> tuple[slice, slice]:
    """Return the rows and columns of the stored picture shown by a crop of the resized one, to the nearest pixel."""
    top, left, height, width = crop
    return _span(top, height, stored[0] / resized[0], stored[0]), _span(left, width, stored[1] / resized[1], stored[1])


def _span(first: int, count: int, scale: float, limit: int) -> slice:
    start = min(round(first * scale), limit - 1)
    return slice(start, min(max(round((first + count) * scale), start + 1), limit))


def resize(pixels: Tensor, size: tuple[int, int], *, antialias: bool, out: Tensor | None = None) -> Tensor:
    """Resize ``(T, H, W, C)`` to ``(T, *size, C)``, bilinear and contiguous; into ``out`` if given."""
    if pixels.shape[1:3] != size:
        # Torch has fast uint8 kernels for channels last, if the pixels are contiguous.
        planes = pixels.contiguous().permute(0, 3, 1, 2)
        on_gpu = pixels.device.type != "cpu"  # where torch has no antialiasing of integers
        if pixels.dtype not in _RESIZED_AS_THEY_ARE or (on_gpu and pixels.dtype == torch.uint8):
            planes = planes.float()
        resized = interpolate(planes, size=size, mode="bilinear", antialias=antialias).permute(0, 2, 3, 1)
        whole = not pixels.dtype.is_floating_point and resized.is_floating_point()
        pixels = (resized.round() if whole else resized).to(pixels.dtype)
    return pixels.contiguous() if out is None else out.copy_(pixels)


def read_clip(
    index: VideoIndex,
    frames: NDArray[np.int64],
    *,
    resized: tuple[int, int],
    crop: Box,
    antialias: bool,
    out: Tensor | None = None,
) -> Frames:
    """Decode frames of a file by number.

    The decoder's scaler resizes at no extra cost, but always averages when it shrinks; without antialiasing, pictures
    are decoded at full size and resized here.

    Raises:
        VideoError: If the file cannot be read.
    """
    if antialias:
        into = None if out is None else out.numpy()
        pixels, filled = read_frames(index, frames, height=resized[0], width=resized[1], crop=crop, out=into)
        return Frames(torch.from_numpy(pixels) if out is None else out, int(filled.sum()))
    pixels, filled = read_frames(index, frames)
    return Frames(resample(torch.from_numpy(pixels), resized, crop, antialias=False, out=out), int(filled.sum()))


class FileSource:
    """Decodes frames from video files; each process caches the indexes of recent files."""

    def __init__(self, videos: VideoList, *, kept: KeptIndexes | None = None) -> None:
        """Create the source of a list of videos.

        Args:
            videos: Paths of the files.
            kept: Persistent store of indexes; none by default.
        """
        self.videos = videos
        self._kept = kept
        self._indexes = Recent(self._probe)

    def index(self, item: int) -> VideoIndex:
        """Return the index of a file, probed on first use."""
        return self._indexes(item)

    def _probe(self, item: int) -> VideoIndex:
        path = str(self.videos.path(item))
        return probe(path) if self._kept is None else self._kept(path)

    def info(self, item: int) -> VideoInfo:
        """Return the times and displayed size of a video."""
        return self.index(item).info

    def read(self, item: int, frames: NDArray[np.int64], **how: Unpack[Shown]) -> Frames:
        """Decode frames by number."""
        return read_clip(self.index(item), frames, **how)
