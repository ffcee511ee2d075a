"""EDVR (Wang et al. 2019): the centre frame of a window, from all of its frames aligned by deformable convolutions."""

from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.errors import PlanError, RecipeError
from vcycle.tasks.superres.models.alignment import Alignment
from vcycle.tasks.superres.models.attention import Fusion
from vcycle.tasks.superres.models.blocks import (
    SCALE,
    Upsampler,
    check_scale,
    check_video,
    conv3x3,
    grouped,
    leaky,
    recomputed,
    residual_blocks,
)

__all__ = ["EDVR"]

_MULTIPLE = 4
_SMALLEST = 3


class EDVR(nn.Module):
    """EDVR at a scale of 4, by default in its middle size (EDVR-M), for frames of any size from 3 pixels on.

    Args:
        window: frames that it takes, an odd number.
        channels: of the features.
        groups: parts of the channels with offsets of their own.
        front_blocks: residual blocks before the alignment.
        back_blocks: residual blocks after the fusion.
        attention: fuse by attention in time and space (TSA); otherwise by one convolution.
        head_channels: of the last layers, at the full size: 64 in the published networks whatever ``channels``.
        zero_last: start from enlarged frames: see :class:`Upsampler`.
        checkpointing: compute activations again in the backward pass.
        scale: 4.

    Raises:
        RecipeError: a value is not accepted, or torchvision is not installed.
    """

    def __init__(
        self,
        *,
        window: int = 5,
        channels: int = 64,
        groups: int = 8,
        front_blocks: int = 5,
        back_blocks: int = 10,
        attention: bool = True,
        head_channels: int = 64,
        zero_last: bool = True,
        checkpointing: bool = False,
        scale: int = SCALE,
    ) -> None:
        super().__init__()
        check_scale(scale)
        if window % 2 == 0:
            raise RecipeError(f"window is {window}; accepted: an odd number of frames, whose centre is restored")
        self.window = window
        self.checkpointing = checkpointing
        self.first = conv3x3(3, channels)
        self.front = residual_blocks(front_blocks, channels)
        self.half1 = conv3x3(channels, channels, stride=2)
        self.half2 = conv3x3(channels, channels)
        self.quarter1 = conv3x3(channels, channels, stride=2)
        self.quarter2 = conv3x3(channels, channels)
        self.align = Alignment(channels, groups)
        self.fusion = Fusion(channels, window) if attention else nn.Conv2d(window * channels, channels, 1)
        self.back = residual_blocks(back_blocks, channels)
        self.head = Upsampler(channels, head_channels, zero_last=zero_last)

    def outputs(self, frames: int) -> range:
        """Return which frames of a clip :meth:`forward` gives: the centre one.

        Raises:
            PlanError: the clip is not as long as the window.
        """
        if frames != self.window:
            raise PlanError(f"{frames} frames for EDVR with a window of {self.window}; accepted: {self.window}")
        return range(frames // 2, frames // 2 + 1)

    def forward(self, video: Tensor, *, mirrored: bool = False) -> Tensor:
        """Return the centre frame, ``(B, 1, 3, 4H, 4W)`` in fp32.

        Args:
            video: ``(B, window, 3, H, W)`` in 0..1, RGB.
            mirrored: refused: a window is not made of a clip and its mirror image.

        Raises:
            PlanError: it is no video, not as long as the window, smaller than 3 pixels, or mirrored.
        """
        check_video(video)
        centre = self.outputs(video.shape[1])
        height, width = video.shape[-2:]
        if mirrored or min(height, width) < _SMALLEST:
            raise PlanError(
                f"EDVR got {'a mirrored clip of ' if mirrored else ''}{width} × {height} pixels; "
                f"accepted: plain windows of at least {_SMALLEST} pixels"
            )
        frames = video.flatten(0, 1)
        frames = F.pad(frames, (0, -width % _MULTIPLE, 0, -height % _MULTIPLE), mode="reflect")
        aligned = self._aligned(frames)
        details = recomputed(self._restore, grouped(aligned, self.window), on=self.checkpointing).float()
        kept = video[:, centre.start].float()
        output = F.interpolate(kept, scale_factor=SCALE, mode="bilinear", align_corners=False)
        return (output + details[..., : SCALE * height, : SCALE * width])[:, None]

    def _aligned(self, frames: Tensor) -> Tensor:
        """Features ``(B·T, C, H, W)`` of all frames, each as the centre frame of its window has them."""
        features = recomputed(self._features, frames, on=self.checkpointing)
        halves = leaky(self.half2(leaky(self.half1(features))))
        levels = (features, halves, leaky(self.quarter2(leaky(self.quarter1(halves)))))
        # Every frame beside its centre frame, so that each layer is called once for all.
        centres = tuple(
            grouped(level, self.window)[:, self.window // 2].repeat_interleave(self.window, 0) for level in levels
        )
        return recomputed(self._align, *levels, *centres, on=self.checkpointing)

    def _features(self, frames: Tensor) -> Tensor:
        features: Tensor = self.front(leaky(self.first(frames)))
        return features

    def _align(self, *levels: Tensor) -> Tensor:
        aligned: Tensor = self.align(levels[:3], levels[3:])
        return aligned

    def _restore(self, aligned: Tensor) -> Tensor:
        """What is to be added to the enlarged centre frames."""
        fused = self.fusion(aligned) if isinstance(self.fusion, Fusion) else self.fusion(aligned.flatten(1, 2))
        details: Tensor = self.head(self.back(fused))
        return details
