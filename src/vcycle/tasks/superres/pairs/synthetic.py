"""Synthetic datasets of any shape, generated from the request's key: for benchmarks of loaders, models and plans."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vcycle.data.dataset import Sample
from vcycle.data.request import SampleRequest
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.superres.pairs.dataset import pair_bytes

__all__ = ["SyntheticClips", "SyntheticPairs"]


def _noise(request: SampleRequest, shape: Shape) -> Tensor:
    """uint8 noise ``(T, H, W, 3)``."""
    count = shape.frames * shape.height * shape.width * 3
    words = request.generator().bit_generator.random_raw(-(-count // 8))
    pixels = words.view(np.uint8)[:count].reshape(shape.frames, shape.height, shape.width, 3)
    return torch.from_numpy(pixels)


class SyntheticClips(Dataset[Sample]):
    """Noise with labels, for recognition.

    Example:
        >>> clips = SyntheticClips(100, classes=10)
        >>> clips[SampleRequest(3, Shape(8, 32, 32), (0, 0, 3))].clip.shape
        torch.Size([8, 32, 32, 3])
    """

    samples_grids = True
    """Generates each requested clip at its shape."""

    def __init__(self, clips: int, *, classes: int) -> None:
        """Make a dataset of so many clips; the label of a clip is its index modulo the classes."""
        if clips < 1 or classes < 1:
            raise DataError(f"clips={clips}, classes={classes}: at least 1 of each is needed")
        self.clips = clips
        self.classes = classes

    def __len__(self) -> int:
        """Number of clips."""
        return self.clips

    def sample_bytes(self, shape: Shape) -> int:
        """Shared memory that a sample takes."""
        return 3 * shape.voxels

    def __getitem__(self, request: SampleRequest) -> Sample:
        """The clip of a request."""
        return Sample(
            clip=_noise(request, request.shape),
            label=request.index % self.classes,
            index=request.index,
            position=request.position,
        )


class SyntheticPairs(Dataset[Sample]):
    """Noise at low resolution, and its pixels enlarged as the truth.

    Example:
        >>> SyntheticPairs(100)[SampleRequest(3, Shape(7, 32, 32), (0, 0, 3))].label.shape
        torch.Size([7, 128, 128, 3])
    """

    samples_grids = True
    """Generates each requested clip at its shape, in low-resolution pixels."""

    def __init__(self, clips: int, *, scale: int = 4) -> None:
        """Make a dataset of so many clips."""
        if clips < 1 or scale < 1:
            raise DataError(f"clips={clips}, scale={scale}: at least 1 of each is needed")
        self.clips = clips
        self.scale = scale

    def __len__(self) -> int:
        """Number of clips."""
        return self.clips

    def sample_bytes(self, shape: Shape) -> int:
        """Shared memory that a sample takes: both clips."""
        return pair_bytes(shape, self.scale)

    def __getitem__(self, request: SampleRequest) -> Sample:
        """The clip of a request."""
        lr = _noise(request, request.shape)
        hr = lr.repeat_interleave(self.scale, dim=1).repeat_interleave(self.scale, dim=2)
        return Sample(clip=lr, label=hr, index=request.index, position=request.position)
