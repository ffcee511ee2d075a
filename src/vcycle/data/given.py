"""Videos given as arrays of frames: a frame source beside that of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcycle.data.info import VideoInfo
from vcycle.data.source import Frames, FrameSource, Shown, resample
from vcycle.errors import DataError

__all__ = ["ArraySource", "frames_of"]


def frames_of(given: Tensor | NDArray[np.uint8], name: str) -> Tensor:
    """Return the frames of a video in memory, uint8 ``(T, H, W, 3)`` on the CPU; a picture is a video of one frame.

    Args:
        given: uint8 ``(T, H, W, 3)``, or a picture ``(H, W, 3)``, RGB.
        name: What it is called in a message.

    Raises:
        DataError: If it is something else.
    """
    kind = str(given.dtype).removeprefix("torch.")
    if kind != "uint8" or given.ndim not in (3, 4) or given.shape[-1] != 3 or 0 in given.shape:
        raise DataError(f"{name}: {kind} {tuple(given.shape)}: frames are uint8 (T, H, W, 3), RGB")
    if isinstance(given, Tensor):
        frames = given.detach().cpu()
    else:
        pixels = np.ascontiguousarray(given)
        frames = torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy())
    return frames[None] if frames.ndim == 3 else frames


class ArraySource:
    """Reads frames of some videos from memory, of the others from another source."""

    def __init__(self, given: Mapping[int, Tensor], others: FrameSource, frame_rate: float) -> None:
        """Create the source.

        Args:
            given: The frames of videos by number in the dataset's list, uint8 ``(T, H, W, 3)``.
            others: The source of the other videos.
            frame_rate: Frames per second of the given ones.
        """
        self._given, self._others, self._rate = given, others, frame_rate

    def info(self, item: int) -> VideoInfo:
        """Return the times and displayed size of a video."""
        if item not in self._given:
            return self._others.info(item)
        frames, height, width, _ = self._given[item].shape
        return VideoInfo.uniform(frames, height, width, self._rate)

    def read(self, item: int, frames: NDArray[np.int64], **how: Unpack[Shown]) -> Frames:
        """Read frames by number."""
        if item not in self._given:
            return self._others.read(item, frames, **how)
        wanted = self._given[item][torch.from_numpy(frames)]
        return Frames(resample(wanted, **how), 0)
