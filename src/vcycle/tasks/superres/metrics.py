"""PSNR and SSIM as the tables of video super-resolution have them: of uint8 frames, RGB or luma.

Frames are uint8 ``(T, 3, H, W)``, RGB. A metric is one number a frame; a clip's is the mean over its frames, a
dataset's the mean over its clips.

PSNR of equal frames is infinite. Such frames (black ones, mostly) are counted, and left out of the mean of the
others, so that one of them does not make a table infinite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcycle.errors import DataError

__all__ = [
    "FRAMES_AT_ONCE",
    "SMALLEST",
    "Channels",
    "ClipMeter",
    "ClipQuality",
    "Protocol",
    "check_restored",
    "clip_quality",
    "luma",
    "mean_quality",
    "psnr",
    "ssim",
    "to_uint8",
]

Channels = Literal["rgb", "y"]

SMALLEST = 11
"""Pixels a side of the windows of SSIM."""
FRAMES_AT_ONCE = 8
"""Frames that are measured together: in double precision, a clip of REDS would take gigabytes."""
_SIGMA = 1.5
_PEAK = 255.0
_C1, _C2 = (0.01 * _PEAK) ** 2, (0.03 * _PEAK) ** 2


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What a number was measured on: to be printed beside it.

    Example:
        >>> print(Protocol(channels="y", frames="centre"))
        Y channel, centre frame
    """

    channels: Channels = "rgb"
    """`rgb`, or `y`: the luma of BT.601, 16 to 235, not rounded."""
    crop: int = 0
    """Pixels that are left out along each border."""
    frames: Literal["all", "centre"] = "all"
    """Frames of a clip that count: `centre` is number `T // 2` (Vimeo-90K)."""

    def __post_init__(self) -> None:
        if self.channels not in get_args(Channels):
            raise DataError(f"channels is {self.channels!r}; accepted: {', '.join(get_args(Channels))}")
        if self.frames not in ("all", "centre"):
            raise DataError(f"frames is {self.frames!r}; accepted: all, centre")
        if self.crop < 0:
            raise DataError(f"crop is {self.crop}; accepted: 0 or more pixels")

    def counting(self, frames: int) -> range:
        """Numbers of the frames that count, of a clip of so many."""
        return range(frames) if self.frames == "all" else range(frames // 2, min(frames, frames // 2 + 1))

    def __str__(self) -> str:
        channels = {"rgb": "RGB", "y": "Y channel"}[self.channels]
        frames = {"all": "all frames", "centre": "centre frame"}[self.frames]
        return f"{channels}, {frames}" + (f", {self.crop} pixels of each border left out" if self.crop else "")


@dataclass(frozen=True, kw_only=True)
class ClipQuality:
    """How near a clip is to the truth."""

    psnr: float
    """Mean over the frames that differ from the truth, in dB; infinite if none does."""
    ssim: float
    """Mean over all frames."""
    frames: int
    """Frames that count."""
    identical: int
    """Those among them that equal the truth, and are not in the mean of PSNR."""


def to_uint8(frames: Tensor) -> Tensor:
    """Return frames as they are written to a file: clamped to 0..1, times 255, rounded half to even.

    Example:
        >>> to_uint8(torch.tensor([0.5, 1.5, 2.5, -25, 306]) / 255).tolist()
        [0, 2, 2, 0, 255]
    """
    return frames.float().clamp(0, 1).mul(255).round().to(torch.uint8)


def check_restored(frames: Tensor, clip: str, precision: str) -> None:
    """Refuse what a network made of a clip where it is not all numbers: as uint8 it would be black.

    Args:
        frames: Any of the restored frames.
        clip: What they were made of.
        precision: What the network computed in.

    Raises:
        DataError: naming the clip.
    """
    if not frames.isfinite().all():
        raise DataError(
            f"{clip}: the network's output is not numbers: its weights are not, or are too large for {precision}"
        )


def luma(frames: Tensor) -> Tensor:
    """Return the luma of uint8 frames ``(T, 3, H, W)``: float64 ``(T, 1, H, W)`` from 16 to 235, not rounded."""
    red, green, blue = (frames[:, channel].double() / _PEAK for channel in range(3))
    return (65.481 * red + 128.553 * green + 24.966 * blue + 16)[:, None]


def psnr(output: Tensor, target: Tensor, *, channels: Channels = "rgb", crop: int = 0) -> Tensor:
    """Peak signal-to-noise ratio of each frame, in dB: float64 ``(T,)``; infinite for equal frames.

    Args:
        output: uint8 ``(T, 3, H, W)``.
        target: of the same shape.
        channels: over all three jointly, or the luma's.
        crop: pixels left out along each border.

    Raises:
        DataError: the frames are no such frames, or nothing is left of them.
    """
    output, target = _compared(output, target, channels, crop)
    return 10 * torch.log10(_PEAK**2 / (output - target).square().mean(dim=(1, 2, 3)))


def ssim(output: Tensor, target: Tensor, *, channels: Channels = "rgb", crop: int = 0) -> Tensor:
    """Structural similarity of each frame: float64 ``(T,)``, on the CPU; 1 for equal frames.

    As Wang et al. 2004 and MATLAB have it: Gaussian windows of 11 × 11 pixels and σ = 1.5 where they lie within the
    frame, biased covariances, the mean over channels. scikit-image's defaults differ, and torchmetrics averages over
    windows that reach beyond the border.

    Args:
        output: uint8 ``(T, 3, H, W)``, of at least 11 pixels a side without what is cropped.
        target: of the same shape.
        channels: each by itself, or the luma's.
        crop: pixels left out along each border.

    Raises:
        DataError: the frames are no such frames, or too small.
    """
    output, target = _compared(output, target, channels, crop)
    if min(output.shape[-2:]) < SMALLEST:
        raise DataError(
            f"frames of {output.shape[-1]} × {output.shape[-2]} pixels; accepted: at least {SMALLEST} a side for SSIM"
        )
    pairs = zip(output.cpu().numpy(), target.cpu().numpy(), strict=True)
    return torch.tensor([_ssim(*pair) for pair in pairs], dtype=torch.float64)


def clip_quality(output: Tensor, target: Tensor, protocol: Protocol) -> ClipQuality:
    """Return how near a clip is to the truth.

    Args:
        output: uint8 ``(T, 3, H, W)``, as :func:`to_uint8` makes it.
        target: of the same shape.
        protocol: what counts.

    Raises:
        DataError: the frames are no such frames, or too small.
    """
    if output.shape != target.shape:
        raise DataError(f"output {tuple(output.shape)} and target {tuple(target.shape)}; accepted: equal shapes")
    counting = protocol.counting(len(output))
    output, target = (frames[counting.start : counting.stop] for frames in (output, target))
    meter = ClipMeter(protocol)
    for piece in zip(torch.split(output, FRAMES_AT_ONCE), torch.split(target, FRAMES_AT_ONCE), strict=True):
        meter.add(*piece)
    return meter.quality


class ClipMeter:
    """How near a clip is to the truth, of frames that come a few at a time: it keeps two numbers a frame.

    Example:
        >>> meter = ClipMeter(Protocol())
        >>> for level in (0, 1):
        ...     meter.add(torch.full((1, 3, 16, 16), level, dtype=torch.uint8), torch.zeros(1, 3, 16, 16).byte())
        >>> meter.quality.frames, meter.quality.identical, round(meter.psnr, 2)
        (2, 1, 48.13)
    """

    def __init__(self, protocol: Protocol, *, similarity: bool = True) -> None:
        """Begin without frames.

        Args:
            protocol: Which channels count, and which pixels; which frames do is up to the caller.
            similarity: Whether to take SSIM as well, which takes longer than PSNR.
        """
        self._protocol = protocol
        self._similarity = similarity
        self._ratios: list[float] = []
        self._similarities: list[float] = []

    def add(self, output: Tensor, target: Tensor) -> None:
        """Count frames, uint8 ``(T, 3, H, W)`` each.

        Raises:
            DataError: the frames are no such frames, or too small.
        """
        self._ratios += psnr(output, target, channels=self._protocol.channels, crop=self._protocol.crop).tolist()
        if self._similarity:
            self._similarities += ssim(
                output, target, channels=self._protocol.channels, crop=self._protocol.crop
            ).tolist()

    @property
    def psnr(self) -> float:
        """Mean over the frames that differ from the truth, in dB; infinite if none does."""
        differs = self._differing()
        return float(differs.mean()) if len(differs) else math.inf

    @property
    def quality(self) -> ClipQuality:
        """What the frames come to so far."""
        frames = len(self._ratios)
        return ClipQuality(
            psnr=self.psnr,
            ssim=float(torch.tensor(self._similarities, dtype=torch.float64).mean()),
            frames=frames,
            identical=frames - len(self._differing()),
        )

    def _differing(self) -> Tensor:
        ratios = torch.tensor(self._ratios, dtype=torch.float64)
        return ratios[ratios.isfinite()]


def mean_quality(clips: Sequence[ClipQuality]) -> ClipQuality:
    """Return the mean over clips, each counting once; frames are summed.

    Clips that equal the truth in every frame are not in the mean of PSNR.

    Raises:
        DataError: there are no clips.
    """
    if not clips:
        raise DataError("no clips; accepted: at least one to take the mean of")
    finite = [clip.psnr for clip in clips if math.isfinite(clip.psnr)]
    return ClipQuality(
        psnr=math.fsum(finite) / len(finite) if finite else math.inf,
        ssim=math.fsum(clip.ssim for clip in clips) / len(clips),
        frames=sum(clip.frames for clip in clips),
        identical=sum(clip.identical for clip in clips),
    )


def _compared(output: Tensor, target: Tensor, channels: Channels, crop: int) -> tuple[Tensor, Tensor]:
    """What is compared: float64 ``(T, C, H, W)``, cropped."""
    for frames in (output, target):
        if frames.dim() != 4 or frames.shape[1] != 3 or frames.dtype != torch.uint8:
            raise DataError(f"frames {tuple(frames.shape)}, {frames.dtype}; accepted: uint8 (T, 3, H, W)")
    if output.shape != target.shape:
        raise DataError(f"output {tuple(output.shape)} and target {tuple(target.shape)}; accepted: equal shapes")
    height, width = output.shape[-2:]
    if min(height, width) <= 2 * crop or not len(output):
        raise DataError(f"nothing is left of {len(output)} frames of {width} × {height} pixels with a crop of {crop}")
    inner = (..., slice(crop, height - crop), slice(crop, width - crop))
    first, second = ((luma(x) if channels == "y" else x.double())[inner] for x in (output, target))
    return first, second


def _ssim(output: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """Of one frame ``(C, H, W)``."""
    from scipy.ndimage import gaussian_filter

    margin = SMALLEST // 2
    inner = (slice(None), slice(margin, -margin), slice(margin, -margin))

    def means(image: NDArray[np.float64]) -> NDArray[np.float64]:
        filtered: NDArray[np.float64] = gaussian_filter(image, _SIGMA, radius=margin, axes=(1, 2))[inner]
        return filtered

    mean1, mean2 = means(output), means(target)
    product, squares = mean1 * mean2, mean1**2 + mean2**2
    covariance = means(output * target) - product
    variances = means(output**2 + target**2) - squares
    similarity = (2 * product + _C1) * (2 * covariance + _C2) / ((squares + _C1) * (variances + _C2))
    return float(similarity.mean())
