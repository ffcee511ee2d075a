"""Where frames come from: one small interface, and its implementation on video files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.recent import Recent
from vcycle.data.video import VideoIndex, probe, read_frames

__all__ = ["Box", "FileSource", "FrameSource", "Frames", "part_shown", "read_clip", "resample", "resize"]

Box = tuple[int, int, int, int]

_INDEXES_KEPT = 8192  # about 5 kB each


class Frames(NamedTuple):
    """Frames as they were asked for."""

    pixels: Tensor
    """uint8 ``(T, h, w, 3)``, RGB."""

    filled: int
    """How many of them could not be decoded and show the one before instead."""


class FrameSource(Protocol):
    """What a dataset reads its frames through. Both calls raise ``VideoError`` for an unusable video."""

    def info(self, item: int) -> VideoInfo:
        """Times and displayed size of a video."""
        ...

    def read(
        self, item: int, frames: NDArray[np.int64], *, resized: tuple[int, int], crop: Box, antialias: bool
    ) -> Frames:
        """Frames by number: the crop (top, left, height, width) of pictures resized to ``resized``."""
        ...


def resample(pixels: Tensor, resized: tuple[int, int], crop: Box, *, antialias: bool) -> Tensor:
    """The crop of a resized clip, the cheap way round: first the part that the crop shows, then the resize.

    Args:
        pixels: ``(T, H, W, C)``, uint8 or floating.
        resized: Height and width that the whole picture would be resized to.
        crop: Top, left, height and width in the resized picture.
        antialias: Average over the pixels between samples when shrinking.

    Returns:
        ``(T, height, width, C)``, contiguous.
    """
    rows, columns = part_shown(pixels.shape[1:3], resized, crop)
    return resize(pixels[:, rows, columns], crop[2:], antialias=antialias)


def part_shown(stored: Sequence[int], resized: tuple[int, int], crop: Box) -> tuple[slice, slice]:
    """Rows and columns of the stored picture that a crop of the resized one shows, to the nearest pixel."""
    top, left, height, width = crop
    return _span(top, height, stored[0] / resized[0], stored[0]), _span(left, width, stored[1] / resized[1], stored[1])


def _span(first: int, count: int, scale: float, limit: int) -> slice:
    start = min(round(first * scale), limit - 1)
    return slice(start, min(max(round((first + count) * scale), start + 1), limit))


def resize(pixels: Tensor, size: tuple[int, int], *, antialias: bool) -> Tensor:
    """Resize ``(T, H, W, C)`` to ``(T, *size, C)``, bilinear and contiguous."""
    if pixels.shape[1:3] == size:
        return pixels.contiguous()
    # Channels last is the layout that torch has fast uint8 kernels for, once the pixels are contiguous.
    planes = pixels.contiguous().permute(0, 3, 1, 2)
    return interpolate(planes, size=size, mode="bilinear", antialias=antialias).permute(0, 2, 3, 1).contiguous()


def read_clip(
    index: VideoIndex, frames: NDArray[np.int64], *, resized: tuple[int, int], crop: Box, antialias: bool
) -> Frames:
    """Decode frames of a file by number.

    The decoder's own scaler resizes for nothing, and always averages when it shrinks; without antialiasing,
    pictures are decoded at their full size and resized here.

    Raises:
        VideoError: If the file cannot be read.
    """
    if antialias:
        pixels, filled = read_frames(index, frames, height=resized[0], width=resized[1], crop=crop)
        return Frames(torch.from_numpy(pixels), int(filled.sum()))
    pixels, filled = read_frames(index, frames)
    return Frames(resample(torch.from_numpy(pixels), resized, crop, antialias=False), int(filled.sum()))


class FileSource:
    """Decodes frames from video files; indexes of the files read last are kept, in each process its own."""

    def __init__(self, videos: VideoList) -> None:
        """Read the videos of a list."""
        self.videos = videos
        self._indexes = Recent(self._probe, keep=_INDEXES_KEPT)

    def index(self, item: int) -> VideoIndex:
        """The index of a file, probed on first use."""
        return self._indexes(item)

    def _probe(self, item: int) -> VideoIndex:
        return probe(str(self.videos.path(item)))

    def info(self, item: int) -> VideoInfo:
        """Times and displayed size of a video."""
        return self.index(item).info

    def read(
        self, item: int, frames: NDArray[np.int64], *, resized: tuple[int, int], crop: Box, antialias: bool
    ) -> Frames:
        """Decode frames by number."""
        return read_clip(self.index(item), frames, resized=resized, crop=crop, antialias=antialias)
