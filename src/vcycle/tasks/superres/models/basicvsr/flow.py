"""Optical flow from a pyramid of small networks (SpyNet: Ranjan and Black 2017), and warping.

A flow is ``(N, 2, H, W)``: the displacement of each pixel to the other frame, in pixels to the right and down.
Flows and grids stay in fp32 under autocast: beyond 128 pixels, bf16 cannot represent half a pixel.
"""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["SpyNet", "grid_of", "sample", "warp"]

Padding = Literal["zeros", "border"]

_MULTIPLE = 32
_LEVELS = 6
_WIDTHS = (8, 32, 64, 32, 16, 2)


def grid_of(flow: Tensor) -> Tensor:
    """Convert a flow to a sampling grid for :func:`sample`, ``(N, H, W, 2)`` fp32: -1 and 1 are edge pixels."""
    height, width = flow.shape[-2:]
    flow = flow.float()
    x = torch.arange(width, device=flow.device) + flow[:, 0]
    y = torch.arange(height, device=flow.device)[:, None] + flow[:, 1]
    return torch.stack((x * (2 / max(width - 1, 1)) - 1, y * (2 / max(height - 1, 1)) - 1), dim=-1)


def sample(x: Tensor, grid: Tensor, padding: Padding = "zeros") -> Tensor:
    """Sample features ``(N, C, H, W)`` bilinearly at a grid's positions, in their own dtype."""
    taken = F.grid_sample(x.float(), grid, mode="bilinear", padding_mode=padding, align_corners=True)
    return taken.to(x.dtype)


def warp(x: Tensor, flow: Tensor, padding: Padding = "zeros") -> Tensor:
    """Sample features at the positions that a flow points to.

    Args:
        x: ``(N, C, H, W)``, of the frame that the flow points to.
        flow: ``(N, 2, H, W)``.
        padding: Values beyond the border: ``zeros``, or the ``border`` pixels repeated.

    Example:
        >>> warp(torch.arange(3.0).view(1, 1, 1, 3), torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 1, 3))
        tensor([[[[1., 2., 0.]]]])
    """
    return sample(x, grid_of(flow), padding)


class SpyNet(nn.Module):
    """Coarse-to-fine flow between two frames of any size, over six levels."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_level() for _ in range(_LEVELS))
        self.register_buffer("mean", torch.tensor((0.485, 0.456, 0.406)).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor((0.229, 0.224, 0.225)).view(1, 3, 1, 1))

    def forward(self, frame: Tensor, other: Tensor) -> Tensor:
        """Return the flow from one frame to another, fp32 ``(N, 2, H, W)``: ``warp(other, flow)`` is like ``frame``.

        Args:
            frame: ``(N, 3, H, W)`` in 0..1, RGB.
            other: of the same shape.
        """
        height, width = frame.shape[-2:]
        tall, wide = (-(-side // _MULTIPLE) * _MULTIPLE for side in (height, width))
        flow = self._flow(self._pyramid(frame, (tall, wide)), self._pyramid(other, (tall, wide)))
        if (tall, wide) != (height, width):
            flow = F.interpolate(flow, size=(height, width), mode="bilinear", align_corners=False)
            flow = torch.stack((flow[:, 0] * (width / wide), flow[:, 1] * (height / tall)), dim=1)
        return flow

    def _pyramid(self, frames: Tensor, size: tuple[int, int]) -> list[Tensor]:
        """Frames normalised and, from the coarsest on, at each level's size."""
        frames = (frames - self.mean) / self.std
        if frames.shape[-2:] != size:
            frames = F.interpolate(frames, size=size, mode="bilinear", align_corners=False)
        levels = [frames]
        while len(levels) < _LEVELS:
            levels.append(F.avg_pool2d(levels[-1], 2))
        return levels[::-1]

    def _flow(self, frames: list[Tensor], others: list[Tensor]) -> Tensor:
        # A start at the coarsest level's own size: one of half that size, enlarged, is empty at 32 pixels.
        flow = torch.zeros_like(frames[0][:, :2], dtype=torch.float32)
        for index, (level, frame, other) in enumerate(zip(self.levels, frames, others, strict=True)):
            if index:
                flow = 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
                other = warp(other, flow, "border")
            flow = flow + level(torch.cat((frame, other, flow.to(frame.dtype)), dim=1)).float()
        return flow


def _level() -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels_in, channels in pairwise(_WIDTHS):
        layers += [nn.Conv2d(channels_in, channels, 7, padding=3), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])
