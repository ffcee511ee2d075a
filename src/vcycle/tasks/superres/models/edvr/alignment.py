"""EDVR's alignment (Wang et al. 2019, section 3.2): deformable convolutions over a pyramid, then once more."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.tasks.superres.models.blocks import conv3x3, leaky
from vcycle.tasks.superres.models.deform import DeformableConv

__all__ = ["Alignment", "twice"]


def twice(x: Tensor) -> Tensor:
    """Enlarge features ×2, bilinearly."""
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class _Level(nn.Module):
    """One level of the pyramid; ``below`` says whether there is a coarser one."""

    def __init__(self, channels: int, groups: int, *, below: bool) -> None:
        super().__init__()
        self.guide1 = conv3x3(2 * channels, channels)
        self.guide2 = conv3x3(2 * channels if below else channels, channels)
        self.guide3 = conv3x3(channels, channels) if below else None
        self.deform = DeformableConv(channels, groups)
        self.merge = conv3x3(2 * channels, channels) if below else None

    def forward(self, frames: Tensor, center: Tensor, coarser: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Return what offsets are predicted from, and the frames' aligned features."""
        guide = leaky(self.guide1(torch.cat((frames, center), dim=1)))
        if coarser is None or self.guide3 is None or self.merge is None:
            guide = leaky(self.guide2(guide))
            return guide, self.deform(frames, guide)
        # Offsets are in pixels of their level, hence twice as long here.
        guide = leaky(self.guide2(torch.cat((guide, 2 * twice(coarser[0])), dim=1)))
        guide = leaky(self.guide3(guide))
        return guide, self.merge(torch.cat((self.deform(frames, guide), twice(coarser[1])), dim=1))


class Alignment(nn.Module):
    """Features of frames, moved to where the center frame has them.

    Args:
        channels: of the features.
        groups: parts of the channels with offsets of their own.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_Level(channels, groups, below=level < 2) for level in range(3))
        self.guide1 = conv3x3(2 * channels, channels)
        self.guide2 = conv3x3(channels, channels)
        self.deform = DeformableConv(channels, groups)

    def forward(self, frames: Sequence[Tensor], center: Sequence[Tensor]) -> Tensor:
        """Return aligned features, ``(N, C, H, W)``.

        Args:
            frames: features ``(N, C, H, W)``, then of half and of a quarter of the size.
            center: those of the center frame that belongs to each.
        """
        coarser: tuple[Tensor, Tensor] | None = None
        for index in (2, 1, 0):
            guide, features = self.levels[index](frames[index], center[index], coarser)
            coarser = guide, leaky(features) if index else features
        guide = leaky(self.guide1(torch.cat((features, center[0]), dim=1)))
        return leaky(self.deform(features, leaky(self.guide2(guide))))
