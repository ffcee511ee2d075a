"""Computes low-resolution frames from high-resolution ones: MATLAB's bicubic, and blur and subsampling (BD).

A low-resolution frame is computed from the *whole* high-resolution frame, which the kernels mirror at its border;
downscaling a crop alone is wrong at the crop's border. ``Degradation.crop`` reads only the crop and the kernel's
margin, and gives the same result as the whole frame.

All pixels are uint8 ``(T, H, W, C)``; boxes are top, left, height and width.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from vcycle.data.source import Box
from vcycle.errors import DataError

__all__ = ["DEGRADATIONS", "Degradation", "imresize"]

DEGRADATIONS = ("bicubic", "bd")

_BLOCK = 24  # outputs computed by one product: long enough for the library, short enough to skip zero weights
_SIGMA_PER_SCALE = 0.4  # 1.6 at a scale of 4
_BLUR_RADIUS = 6
# Sums in different orders differ by 1e-13, so a value within that of a half is always rounded up.
_HALF = 0.5 + 1e-9


class _Taps(NamedTuple):
    """One direction of a separable filter."""

    inputs: Tensor
    """int64 ``(outputs, taps)``: which pixels each output is made of, borders mirrored."""

    weights: Tensor
    """float64 ``(outputs, taps)``, each row of sum 1."""


def _cubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5."""
    x = x.abs()
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return torch.where(x <= 1, near, torch.where(x <= 2, far, torch.zeros_like(x)))


@lru_cache(maxsize=64)
def _bicubic_taps(length: int, scale: Fraction) -> _Taps:
    """MATLAB's ``imresize``: antialiased when it shrinks, edge pixels repeated by the mirror."""
    outputs = -(-length * scale.numerator // scale.denominator)
    factor = float(scale)
    stretch = min(1.0, factor)
    width = 4 / stretch
    centers = (torch.arange(outputs, dtype=torch.float64) + 0.5) / factor - 0.5
    first = torch.floor(centers - width / 2)
    inputs = first.long()[:, None] + torch.arange(int(-(-width // 1)) + 2)
    weights = stretch * _cubic(stretch * (centers[:, None] - inputs))
    weights /= weights.sum(dim=1, keepdim=True)
    inputs = inputs.remainder(2 * length)
    return _Taps(torch.where(inputs < length, inputs, 2 * length - 1 - inputs), weights)


@lru_cache(maxsize=64)
def _blur_taps(length: int, scale: int) -> _Taps:
    """13 Gaussian taps about every ``scale``-th pixel from the first, mirrored without the edge pixel."""
    offsets = torch.arange(-_BLUR_RADIUS, _BLUR_RADIUS + 1)
    weights = torch.exp(-0.5 * (offsets.double() / (_SIGMA_PER_SCALE * scale)) ** 2)
    inputs = torch.arange(0, length, scale)[:, None] + offsets
    inputs = inputs.remainder(max(1, 2 * length - 2))
    inputs = torch.where(inputs < length, inputs, 2 * length - 2 - inputs)
    return _Taps(inputs, (weights / weights.sum()).expand(len(inputs), -1))


def _reach(taps: _Taps, first: int, count: int) -> range:
    """The pixels that some outputs are made of."""
    inputs = taps.inputs[first : first + count]
    return range(int(inputs.min()), int(inputs.max()) + 1)


def _product(taps: _Taps, first: int, count: int, origin: int, source: Tensor) -> Tensor:
    """Outputs ``[first, first + count)`` along the first dimension of a source that begins at pixel ``origin``."""
    result = source.new_empty((count, *source.shape[1:]))
    for start in range(first, first + count, _BLOCK):
        rows = min(_BLOCK, first + count - start)
        reach = _reach(taps, start, rows)
        matrix = torch.zeros(rows, len(reach), dtype=torch.float64)
        block = slice(start, start + rows)
        matrix.scatter_add_(1, taps.inputs[block] - reach.start, taps.weights[block])
        part = source[reach.start - origin : reach.stop - origin]
        torch.mm(matrix, part.flatten(1), out=result[start - first : start - first + rows].flatten(1))
    return result


def _filter(pixels: Tensor, rows: _Taps, columns: _Taps, box: Box, origin: tuple[int, int]) -> Tensor:
    """Outputs in a box, from pixels whose first row and column are ``origin`` of the whole picture."""
    top, left, height, width = box
    channels = pixels.shape[3]
    result = pixels.new_empty((len(pixels), height, width, channels))
    for picture, into in zip(pixels, result, strict=True):
        lines = _product(rows, top, height, origin[0], picture.double())
        turned = _product(columns, left, width, origin[1], lines.permute(1, 0, 2).contiguous())
        into.copy_((turned + _HALF).floor_().clamp_(0, 255).permute(1, 0, 2))
    return result


def imresize(pixels: Tensor, scale: Fraction | int) -> Tensor:
    """Resize whole frames as MATLAB's ``imresize(…, "bicubic")`` does, then round as its ``imwrite`` does.

    Args:
        pixels: uint8 ``(T, H, W, C)``.
        scale: ``Fraction(1, 4)`` for a quarter, 4 for four times.

    Returns:
        uint8 ``(T, ceil(H·scale), ceil(W·scale), C)``.

    Example:
        >>> imresize(torch.full((1, 8, 12, 3), 7, dtype=torch.uint8), Fraction(1, 4)).shape
        torch.Size([1, 2, 3, 3])
    """
    scale = Fraction(scale)
    if scale <= 0:
        raise DataError(f"scale {scale}: must be above 0")
    rows, columns = (_bicubic_taps(side, scale) for side in pixels.shape[1:3])
    return _filter(pixels, rows, columns, (0, 0, len(rows.inputs), len(columns.inputs)), (0, 0))


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """How low-resolution frames are computed from high-resolution frames.

    If the scale does not divide a side, the last rows or columns are cropped first.

    Example:
        >>> Degradation(scale=4).low((720, 1280))
        (180, 320)
    """

    kind: str = "bicubic"
    """`bicubic`: MATLAB's `imresize`. `bd`: a Gaussian of 13 × 13 pixels and σ = 0.4 × scale (1.6 at ×4),
    reflected without the edge pixel, then each `scale`-th pixel from the first, as DUF and BasicSR do."""

    scale: int = 4
    """Ratio of high-resolution to low-resolution sides."""

    def __post_init__(self) -> None:
        """Check kind and scale."""
        if self.kind not in DEGRADATIONS:
            raise DataError(f"degradation {self.kind!r} is unknown: must be {' or '.join(DEGRADATIONS)}")
        if not 2 <= self.scale <= 16:
            raise DataError(f"scale {self.scale}: must be a whole number from 2 to 16")

    def low(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the low-resolution picture of a high-resolution size."""
        return size[0] // self.scale, size[1] // self.scale

    def whole(self, pixels: Tensor) -> Tensor:
        """Low-resolution frames of whole high-resolution ones: uint8 ``(T, H//scale, W//scale, C)``."""
        height, width = self.low((pixels.shape[1], pixels.shape[2]))
        used = pixels[:, : height * self.scale, : width * self.scale]
        return self.crop(used, (0, 0, height, width), (pixels.shape[1], pixels.shape[2]))

    def region(self, crop: Box, size: tuple[int, int]) -> Box:
        """The high-resolution box needed for a low-resolution crop: the crop's own pixels and the kernel's margin.

        Args:
            crop: In low-resolution pixels.
            size: Height and width of the whole high-resolution picture.
        """
        rows, columns = self._taps(size)
        vertical, horizontal = _reach(rows, crop[0], crop[2]), _reach(columns, crop[1], crop[3])
        # Kernels may reach less far than the crop's own high-resolution pixels do.
        top, bottom = min(vertical.start, crop[0] * self.scale), max(vertical.stop, (crop[0] + crop[2]) * self.scale)
        left, right = (
            min(horizontal.start, crop[1] * self.scale),
            max(horizontal.stop, (crop[1] + crop[3]) * self.scale),
        )
        return top, left, bottom - top, right - left

    def crop(self, pixels: Tensor, crop: Box, size: tuple[int, int]) -> Tensor:
        """Compute a low-resolution crop from the pixels of its ``region``, with the same result as the whole frame.

        Args:
            pixels: uint8 ``(T, h, w, C)``: what ``region(crop, size)`` covers.
            crop: In low-resolution pixels.
            size: Height and width of the whole high-resolution picture.

        Returns:
            uint8 ``(T, *crop[2:], C)``.
        """
        top, left, _, _ = self.region(crop, size)
        rows, columns = self._taps(size)
        return _filter(pixels, rows, columns, crop, (top, left))

    def _taps(self, size: tuple[int, int]) -> tuple[_Taps, _Taps]:
        height, width = self.low(size)
        if not height or not width:
            raise DataError(f"a picture of {size[1]} × {size[0]} pixels is too small for a scale of {self.scale}")
        return self._along(height * self.scale), self._along(width * self.scale)

    def _along(self, side: int) -> _Taps:
        return _bicubic_taps(side, Fraction(1, self.scale)) if self.kind == "bicubic" else _blur_taps(side, self.scale)
