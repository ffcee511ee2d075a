"""Clips made smaller as they are read: what a video's compression left in it is not to be learned as detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vcycle.data.source import Box
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo, ClipStore
from vcycle.tasks.superres.pairs.degrade import imresize
from vcycle.tasks.superres.pairs.layouts import ClipPairs

__all__ = ["ResizedClips", "resized_pairs"]


class ResizedClips:
    """Another store's clips at a fraction of their size, by MATLAB's bicubic; whole frames are read for every box."""

    def __init__(self, clips: ClipStore, factor: Fraction) -> None:
        """Name the clips, and what their sides are multiplied by: above 0 and below 1."""
        if not 0 < factor < 1:
            raise DataError(f"frames resized by {factor}: a factor above 0 and below 1 is accepted, such as 1/2")
        self.clips = clips
        self.factor = factor
        self.names: Sequence[str] = clips.names

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.clips)

    def path(self, item: int) -> Path:
        """File or folder of a clip."""
        return self.clips.path(item)

    def info(self, item: int) -> ClipInfo:
        """Length of a clip, and the size that it is made, rounded up."""
        info = self.clips.info(item)
        height, width = (
            -(-side * self.factor.numerator // self.factor.denominator) for side in (info.height, info.width)
        )
        return ClipInfo(frames=info.frames, height=height, width=width)

    def read(self, item: int, frames: Sequence[int], box: Box | None = None) -> NDArray[np.uint8]:
        """Frames by number, whole or the box of each."""
        pixels: NDArray[np.uint8] = imresize(torch.from_numpy(self.clips.read(item, frames)), self.factor).numpy()
        if box is None:
            return pixels
        top, left, height, width = box
        return pixels[:, top : top + height, left : left + width]


def resized_pairs(pairs: ClipPairs, factor: Fraction) -> ClipPairs:
    """Clips made smaller, and low-resolution frames made of these.

    Raises:
        DataError: if low-resolution frames are there already, or the factor is not below 1.
    """
    if pairs.low is not None:
        raise DataError(
            f"{pairs.source}: frames resized by {factor} do not fit the low-resolution frames that are there already: "
            "leave these out, and they are made"
        )
    return replace(pairs, high=ResizedClips(pairs.high, factor))
