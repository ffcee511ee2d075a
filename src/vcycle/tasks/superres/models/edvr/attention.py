"""EDVR's fusion of aligned frames (Wang et al. 2019, section 3.3): attention in time, then in space."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.tasks.superres.models.blocks import conv3x3, grouped, leaky
from vcycle.tasks.superres.models.edvr.alignment import twice

__all__ = ["Fusion"]


class Fusion(nn.Module):
    """Aligned features of a window to those of its center frame.

    Args:
        channels: of the features.
        frames: of the window.
    """

    def __init__(self, channels: int, frames: int) -> None:
        super().__init__()
        self.embed_center = conv3x3(channels, channels)
        self.embed = conv3x3(channels, channels)
        self.fuse = nn.Conv2d(frames * channels, channels, 1)
        self.space1 = nn.Conv2d(frames * channels, channels, 1)
        self.space2 = nn.Conv2d(2 * channels, channels, 1)
        self.coarse1 = nn.Conv2d(channels, channels, 1)
        self.coarse2 = conv3x3(2 * channels, channels)
        self.coarse3 = conv3x3(channels, channels)
        self.space3 = conv3x3(channels, channels)
        self.space4 = nn.Conv2d(channels, channels, 1)
        self.space5 = conv3x3(channels, channels)
        self.add1 = nn.Conv2d(channels, channels, 1)
        self.add2 = nn.Conv2d(channels, channels, 1)

    def forward(self, aligned: Tensor) -> Tensor:
        """Return features ``(B, C, H, W)`` from ``(B, T, C, H, W)``; height and width are multiples of 4."""
        weighed = (aligned * self._likeness(aligned)).flatten(1, 2)
        features = leaky(self.fuse(weighed))
        attention = leaky(self.space2(_pooled(leaky(self.space1(weighed)))))
        coarse = leaky(self.coarse2(_pooled(leaky(self.coarse1(attention)))))
        attention = leaky(self.space3(attention)) + twice(leaky(self.coarse3(coarse)))
        attention = self.space5(twice(leaky(self.space4(attention))))
        added: Tensor = self.add2(leaky(self.add1(attention)))
        restored: Tensor = features * attention.sigmoid() * 2 + added
        return restored

    def _likeness(self, aligned: Tensor) -> Tensor:
        """How much each frame is like the center one at each pixel, ``(B, T, 1, H, W)`` in 0..1."""
        center = self.embed_center(aligned[:, aligned.shape[1] // 2])
        embedded = grouped(self.embed(aligned.flatten(0, 1)), aligned.shape[1])
        likeness: Tensor = (embedded * center[:, None]).sum(2, keepdim=True).sigmoid()
        return likeness


def _pooled(x: Tensor) -> Tensor:
    """Maxima and means of overlapping 3 × 3 squares, at half the size."""
    return torch.cat((F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1)), dim=1)
