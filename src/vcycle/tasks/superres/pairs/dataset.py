"""Samples paired crops of clips at two resolutions: ``dataset[SampleRequest(index, shape, key)]``.

Like super-resolution's plans, a request's shape is in low-resolution pixels. Frames are consecutive and crops are never
resized; a flip or transpose applies to the whole clip and to both resolutions (Lin et al. 2022, "Implementation
Details").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from vcycle.data.dataset import Sample, first_readable, refuse_number, replacements
from vcycle.data.request import SampleRequest
from vcycle.data.source import Box
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.layouts import ClipPairs

__all__ = ["PairedDataset", "WholeClip", "mirror", "pair_bytes"]

_ALIGNMENT = 128  # bytes by which the two clips' places may be moved


class WholeClip(NamedTuple):
    """A whole clip at both resolutions."""

    lr: Tensor
    """uint8 ``(T, h, w, 3)``."""

    hr: Tensor
    """uint8 ``(T, scale·h, scale·w, 3)``."""


def pair_bytes(shape: Shape, scale: int) -> int:
    """Shared memory that a sample takes: both clips, each at a round address."""
    return 3 * shape.voxels * (1 + scale**2) + _ALIGNMENT


def mirror(frames: Tensor) -> Tensor:
    """Frames ``(T, …)`` followed by themselves in reverse: ``(2T, …)``."""
    return torch.cat([frames, frames.flip(0)])


class PairedDataset(Dataset[Sample]):
    """Clips at two resolutions, at any shape.

    A sample has the clip, uint8 ``(T, h, w, 3)``, and as its label the same at high resolution, uint8
    ``(T, scale·h, scale·w, 3)``.

    A clip that cannot be read, or is too short or too small for the shape, is replaced by another one. The replacement
    is drawn with the request's key, so it is the same in every run, and is recorded in the sample.
    """

    samples_grids = True
    """Samples each requested clip at its shape."""

    def __init__(self, pairs: ClipPairs, *, mirrored: bool = False, flip: bool = True, transpose: bool = True) -> None:
        """Sample crops of clips.

        Args:
            pairs: The clips.
            mirrored: A clip of T frames is T/2 of the source followed by their mirror image (Vimeo-90K).
            flip: Flip half of the clips horizontally and, independently, half of them vertically.
            transpose: Transpose half of the clips.
        """
        self.pairs = pairs
        self.mirrored = mirrored
        self.flip = flip
        self.transpose = transpose

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.pairs)

    def part(self, items: Sequence[int]) -> PairedDataset:
        """A dataset of these clips alone, in this order."""
        return PairedDataset(self.pairs.part(items), mirrored=self.mirrored, flip=self.flip, transpose=self.transpose)

    def __getitem__(self, request: SampleRequest) -> Sample:
        """The crop that a request names, or that of a replacement.

        Raises:
            DataError: If 16 clips in a row (or all of a smaller dataset) cannot be read, or the shape has an odd
                number of frames where clips are mirrored.
        """
        refuse_number(self, request)
        index, sample, failed = first_readable(
            request, len(self), lambda item: self._read_for(request, item), what="clips in a row cannot be used"
        )
        return sample if not failed else replace(sample, replaced=replacements(request, index, failed))

    def whole(self, item: int, frames: range | None = None) -> WholeClip:
        """Frames of a clip at their full size, for evaluation: no crop, no flip, not mirrored.

        Args:
            item: Which clip.
            frames: Which of its frames; all by default.

        Raises:
            VideoError: If the clip cannot be read.
        """
        info = self.pairs.info(item)
        height, width = self.pairs.degradation.low((info.height, info.width))
        lr, hr = self._read(item, info, range(info.frames) if frames is None else frames, (0, 0, height, width))
        return WholeClip(lr, hr)

    def name(self, item: int) -> str:
        """The path of a clip, for messages."""
        return str(self.pairs.high.path(item))

    def sample_bytes(self, shape: Shape) -> int:
        """Shared memory that a sample takes: both clips."""
        return pair_bytes(shape, self.pairs.degradation.scale)

    def _read_for(self, request: SampleRequest, item: int) -> Sample:
        if self.mirrored and request.shape.frames % 2:
            raise DataError(f"{request.shape.frames} frames: mirrored clips have even numbers of frames")
        # All draws at once, so that an option that is off shifts no other draw.
        start, above, before, left_right, upside_down, exchange = request.generator().random(6).tolist()
        shape = request.shape
        transposed = self.transpose and exchange < 0.5
        height, width = (shape.width, shape.height) if transposed else (shape.height, shape.width)
        wanted = shape.frames // 2 if self.mirrored else shape.frames
        info = self.pairs.info(item)
        room = (info.frames - wanted, *self._room(info, height, width))
        if min(room) < 0:
            has = f"{info.frames} frames of {info.width} × {info.height}"
            scale = self.pairs.degradation.scale
            asked = f"{wanted} frames of {width * scale} × {height * scale}"
            raise VideoError(str(self.pairs.high.path(item)), f"{has}, too short or too small for {asked}")
        first, top, left = (
            min(int((free + 1) * draw), free) for free, draw in zip(room, (start, above, before), strict=True)
        )
        lr, hr = self._read(item, info, range(first, first + wanted), (top, left, height, width))
        flips = [axis for axis, draw in ((2, left_right), (1, upside_down)) if self.flip and draw < 0.5]
        lr, hr = self._turned(lr, flips, transposed), self._turned(hr, flips, transposed)
        return Sample(clip=lr, label=hr, index=item, position=request.position)

    def _room(self, info: ClipInfo, height: int, width: int) -> tuple[int, int]:
        """Places that a low-resolution crop can be moved by, down and to the right."""
        low = self.pairs.degradation.low((info.height, info.width))
        return low[0] - height, low[1] - width

    def _turned(self, frames: Tensor, flips: list[int], transposed: bool) -> Tensor:
        if flips:
            frames = frames.flip(flips)
        if transposed:
            frames = frames.transpose(1, 2)
        return mirror(frames) if self.mirrored else frames.contiguous()

    def _read(self, item: int, info: ClipInfo, frames: range, crop: Box) -> tuple[Tensor, Tensor]:
        """Frames at both resolutions, the crop in low-resolution pixels."""
        high, low, degradation = self.pairs.high, self.pairs.low, self.pairs.degradation
        scale = degradation.scale
        box = (crop[0] * scale, crop[1] * scale, crop[2] * scale, crop[3] * scale)
        if low is not None:
            return torch.from_numpy(low.read(item, frames, crop)), torch.from_numpy(high.read(item, frames, box))
        size = (info.height, info.width)
        region = degradation.region(crop, size)
        pixels = torch.from_numpy(high.read(item, frames, region))
        top, left = box[0] - region[0], box[1] - region[1]
        return degradation.crop(pixels, crop, size), pixels[:, top : top + box[2], left : left + box[3]]
