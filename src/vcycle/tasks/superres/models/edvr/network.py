"""EDVR itself."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.errors import PlanError
from vcycle.tasks.superres.models.blocks import (
    Upsampler,
    check_video,
    conv3x3,
    count_layers,
    grouped,
    head_channels,
    leaky,
    recomputed,
    residual_blocks,
)
from vcycle.tasks.superres.models.deform import OFFSETS_A_GROUP
from vcycle.tasks.superres.models.edvr import SMALLEST, EDVROptions
from vcycle.tasks.superres.models.edvr.alignment import Alignment
from vcycle.tasks.superres.models.edvr.attention import Fusion
from vcycle.tasks.superres.scale import SCALE

__all__ = ["EDVR", "options_of"]

_MULTIPLE = 4


class EDVR(nn.Module):
    """EDVR at a scale of 4, by default in its middle size (EDVR-M), for frames of any size from 3 pixels on.

    Args:
        options: fields of :class:`EDVROptions`.

    Raises:
        RecipeError: an option is unknown or not accepted, or torchvision is not installed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        o: EDVROptions = EDVROptions.of("EDVR", options)
        channels = o.channels
        self.window = o.window
        self.checkpointing = o.checkpointing
        self.first = conv3x3(3, channels)
        self.front = residual_blocks(o.front_blocks, channels)
        self.half1 = conv3x3(channels, channels, stride=2)
        self.half2 = conv3x3(channels, channels)
        self.quarter1 = conv3x3(channels, channels, stride=2)
        self.quarter2 = conv3x3(channels, channels)
        self.align = Alignment(channels, o.groups)
        self.fusion = Fusion(channels, o.window) if o.attention else nn.Conv2d(o.window * channels, channels, 1)
        self.back = residual_blocks(o.back_blocks, channels)
        self.head = Upsampler(channels, o.head_channels, zero_last=o.zero_last)

    def outputs(self, frames: int) -> range:
        """Return which frames of a clip :meth:`forward` gives: the center one.

        Raises:
            PlanError: the clip is not as long as the window.
        """
        if frames != self.window:
            raise PlanError(f"{frames} frames for EDVR with a window of {self.window}; accepted: {self.window}")
        return range(frames // 2, frames // 2 + 1)

    def forward(self, video: Tensor, *, mirrored: bool = False) -> Tensor:
        """Return the center frame, ``(B, 1, 3, 4H, 4W)`` in fp32.

        Args:
            video: ``(B, window, 3, H, W)`` in 0..1, RGB.
            mirrored: refused: a window is not made of a clip and its mirror image.

        Raises:
            PlanError: it is no video, not as long as the window, smaller than 3 pixels, or mirrored.
        """
        check_video(video)
        center = self.outputs(video.shape[1])
        height, width = video.shape[-2:]
        if mirrored or min(height, width) < SMALLEST:
            raise PlanError(
                f"EDVR got {'a mirrored clip of ' if mirrored else ''}{width} × {height} pixels; "
                f"accepted: plain windows of at least {SMALLEST} pixels"
            )
        frames = video.flatten(0, 1)
        frames = F.pad(frames, (0, -width % _MULTIPLE, 0, -height % _MULTIPLE), mode="reflect")
        aligned = self._aligned(frames)
        details = recomputed(self._restore, grouped(aligned, self.window), on=self.checkpointing).float()
        kept = video[:, center.start].float()
        output = F.interpolate(kept, scale_factor=SCALE, mode="bilinear", align_corners=False)
        return (output + details[..., : SCALE * height, : SCALE * width])[:, None]

    def _aligned(self, frames: Tensor) -> Tensor:
        """Features ``(B·T, C, H, W)`` of all frames, each as the center frame of its window has them."""
        features = recomputed(self._features, frames, on=self.checkpointing)
        halves = leaky(self.half2(leaky(self.half1(features))))
        levels = (features, halves, leaky(self.quarter2(leaky(self.quarter1(halves)))))
        # Every frame beside its center frame, so that each layer is called once for all.
        centers = tuple(
            grouped(level, self.window)[:, self.window // 2].repeat_interleave(self.window, 0) for level in levels
        )
        return recomputed(self._align, *levels, *centers, on=self.checkpointing)

    def _features(self, frames: Tensor) -> Tensor:
        features: Tensor = self.front(leaky(self.first(frames)))
        return features

    def _align(self, *levels: Tensor) -> Tensor:
        aligned: Tensor = self.align(levels[:3], levels[3:])
        return aligned

    def _restore(self, aligned: Tensor) -> Tensor:
        """Residual to add to the bicubically enlarged center frames."""
        fused = self.fusion(aligned) if isinstance(self.fusion, Fusion) else self.fusion(aligned.flatten(1, 2))
        details: Tensor = self.head(self.back(fused))
        return details


def options_of(state: Mapping[str, Tensor]) -> tuple[dict[str, Any], str] | None:
    """Return the options of the EDVR whose tensors these are, by our names, and a description in a line.

    None where they are of something else; where some are missing, the network built so will miss them.
    """
    if "first.weight" not in state:
        return None
    channels = len(state["first.weight"])
    attention = "fusion.fuse.weight" in state
    fused = state.get("fusion.fuse.weight" if attention else "fusion.weight")
    window = 0 if fused is None else fused.shape[1] // channels
    groups = len(state.get("align.deform.offsets.weight", ())) // OFFSETS_A_GROUP
    if window % 2 == 0 or groups == 0 or channels % groups:
        return None
    options = {
        "window": window,
        "channels": channels,
        "groups": groups,
        "front_blocks": count_layers(state, r"front\.(\d+)\."),
        "back_blocks": count_layers(state, r"back\.(\d+)\."),
        "attention": attention,
        "head_channels": head_channels(state),
    }
    return options, f"EDVR of {window} frames and {channels} channels, {'with' if attention else 'without'} TSA"
