"""Downscales clips as they are read, so that compression artefacts are not learned as detail."""

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
    """Another store's clips, downscaled with MATLAB's bicubic; whole frames are read for every box."""

    def __init__(self, clips: ClipStore, factor: Fraction) -> None:
        """Wrap clips; `factor` scales their sides, and must be above 0 and below 1."""
        if not 0 < factor < 1:
            raise DataError(f"frames resized by {factor}: must be a factor above 0 and below 1, such as 1/2")
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
        """Length of a clip, and its size after downscaling, rounded up."""
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
    """Downscale clips; low-resolution frames are computed from the downscaled ones.

    Raises:
        DataError: if the clips have low-resolution frames, or the factor is not below 1.
    """
    if pairs.low is not None:
        raise DataError(
            f"{pairs.source}: frames resized by {factor} do not fit the existing low-resolution frames: leave these "
            "out to compute new ones"
        )
    return replace(pairs, high=ResizedClips(pairs.high, factor))
