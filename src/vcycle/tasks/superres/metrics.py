"""Computes PSNR and SSIM as in the video super-resolution literature: on uint8 frames, RGB or luma.

Frames are uint8 ``(T, 3, H, W)``, RGB. A metric is one number per frame; the value of a clip is the mean over its
frames, that of a dataset the mean over its clips.

The PSNR of equal frames is infinite. Such frames (mostly black ones) are counted and excluded from the mean, which
would be infinite otherwise.
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
"""Side in pixels of SSIM's windows."""
FRAMES_AT_ONCE = 8
"""Number of frames measured together: in double precision, a whole clip of REDS would take gigabytes."""
_SIGMA = 1.5
_PEAK = 255.0
_C1, _C2 = (0.01 * _PEAK) ** 2, (0.03 * _PEAK) ** 2


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The protocol of a metric, printed with its value.

    Example:
        >>> print(Protocol(channels="y", frames="center"))
        Y channel, center frame
    """

    channels: Channels = "rgb"
    """`rgb`, or `y`: the luma of BT.601, 16 to 235, not rounded."""
    crop: int = 0
    """Border in pixels to leave out on each side."""
    frames: Literal["all", "center"] = "all"
    """Frames per clip that count: `center` is frame `T // 2` (Vimeo-90K)."""

    def __post_init__(self) -> None:
        if self.channels not in get_args(Channels):
            raise DataError(f"channels is {self.channels!r}; accepted: {', '.join(get_args(Channels))}")
        if self.frames not in ("all", "center"):
            raise DataError(f"frames is {self.frames!r}; accepted: all, center")
        if self.crop < 0:
            raise DataError(f"crop is {self.crop}; accepted: 0 or more pixels")

    def counting(self, frames: int) -> range:
        """Indices of the frames that count, for a clip with this number of frames."""
        return range(frames) if self.frames == "all" else range(frames // 2, min(frames, frames // 2 + 1))

    def __str__(self) -> str:
        channels = {"rgb": "RGB", "y": "Y channel"}[self.channels]
        frames = {"all": "all frames", "center": "center frame"}[self.frames]
        return f"{channels}, {frames}" + (f", {self.crop} pixels of each border left out" if self.crop else "")


@dataclass(frozen=True, kw_only=True)
class ClipQuality:
    """The quality of a clip compared with the ground truth."""

    psnr: float
    """Mean over the frames that differ from the ground truth, in dB; infinite if none does."""
    ssim: float
    """Mean over all frames."""
    frames: int
    """Number of frames that count."""
    identical: int
    """Number of frames that equal the ground truth; they are excluded from the mean PSNR."""


def to_uint8(frames: Tensor) -> Tensor:
    """Convert frames to uint8: clamp to 0..1, multiply by 255, round half to even.

    Example:
        >>> to_uint8(torch.tensor([0.5, 1.5, 2.5, -25, 306]) / 255).tolist()
        [0, 2, 2, 0, 255]
    """
    return frames.float().clamp(0, 1).mul(255).round().to(torch.uint8)


def check_restored(frames: Tensor, clip: str, precision: str) -> None:
    """Refuse non-finite output of a model: as uint8, it would be black.

    Args:
        frames: Restored frames.
        clip: The source clip, for messages.
        precision: The precision of the forward pass.

    Raises:
        DataError: if a value is not finite; names the clip.
    """
    if not frames.isfinite().all():
        raise DataError(
            f"{clip}: the model's output is not finite: its weights are not finite, or too large for {precision}"
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
        channels: all three channels jointly, or luma.
        crop: border in pixels to leave out on each side.

    Raises:
        DataError: if the frames have another shape or dtype, or nothing is left after the crop.
    """
    output, target = _compared(output, target, channels, crop)
    return 10 * torch.log10(_PEAK**2 / (output - target).square().mean(dim=(1, 2, 3)))


def ssim(output: Tensor, target: Tensor, *, channels: Channels = "rgb", crop: int = 0) -> Tensor:
    """Structural similarity of each frame: float64 ``(T,)``, on the CPU; 1 for equal frames.

    As in Wang et al. 2004 and MATLAB: Gaussian windows of 11 × 11 pixels with σ = 1.5 that lie within the frame, biased
    covariances, the mean over channels. scikit-image's defaults differ, and torchmetrics averages over windows that
    reach beyond the border.

    Args:
        output: uint8 ``(T, 3, H, W)``, at least 11 pixels per side after the crop.
        target: of the same shape.
        channels: each channel separately, or luma.
        crop: border in pixels to leave out on each side.

    Raises:
        DataError: if the frames have another shape or dtype, or are too small.
    """
    output, target = _compared(output, target, channels, crop)
    if min(output.shape[-2:]) < SMALLEST:
        raise DataError(
            f"frames of {output.shape[-1]} × {output.shape[-2]} pixels; accepted: at least {SMALLEST} per side for SSIM"
        )
    pairs = zip(output.cpu().numpy(), target.cpu().numpy(), strict=True)
    return torch.tensor([_ssim(*pair) for pair in pairs], dtype=torch.float64)


def clip_quality(output: Tensor, target: Tensor, protocol: Protocol) -> ClipQuality:
    """Measure the quality of a clip.

    Args:
        output: uint8 ``(T, 3, H, W)``, from :func:`to_uint8`.
        target: of the same shape.
        protocol: the protocol.

    Raises:
        DataError: if the frames have another shape or dtype, or are too small.
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
    """Measures the quality of a clip from a stream of frames; stores two numbers per frame.

    Example:
        >>> meter = ClipMeter(Protocol())
        >>> for level in (0, 1):
        ...     meter.add(torch.full((1, 3, 16, 16), level, dtype=torch.uint8), torch.zeros(1, 3, 16, 16).byte())
        >>> meter.quality.frames, meter.quality.identical, round(meter.psnr, 2)
        (2, 1, 48.13)
    """

    def __init__(self, protocol: Protocol, *, similarity: bool = True) -> None:
        """Create a meter without frames.

        Args:
            protocol: The channels and pixels that count; the caller selects the frames.
            similarity: Whether to compute SSIM as well, which takes longer than PSNR.
        """
        self._protocol = protocol
        self._similarity = similarity
        self._ratios: list[float] = []
        self._similarities: list[float] = []

    def add(self, output: Tensor, target: Tensor) -> None:
        """Add frames, uint8 ``(T, 3, H, W)`` each.

        Raises:
            DataError: if the frames have another shape or dtype, or are too small.
        """
        self._ratios += psnr(output, target, channels=self._protocol.channels, crop=self._protocol.crop).tolist()
        if self._similarity:
            self._similarities += ssim(
                output, target, channels=self._protocol.channels, crop=self._protocol.crop
            ).tolist()

    @property
    def psnr(self) -> float:
        """Mean over the frames that differ from the ground truth, in dB; infinite if none does."""
        differs = self._differing()
        return float(differs.mean()) if len(differs) else math.inf

    @property
    def quality(self) -> ClipQuality:
        """Quality over all frames measured so far."""
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
    """Average the quality over clips, each with equal weight; frame counts are summed.

    Clips that equal the ground truth in every frame are excluded from the mean PSNR.

    Raises:
        DataError: if there are no clips.
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
    """The cropped frames to compare, float64 ``(T, C, H, W)``."""
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
    """SSIM of one frame ``(C, H, W)``."""
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
