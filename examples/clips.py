"""What the examples train: generated clips of a pattern that drifts in one of four directions, and a small network."""

import torch
from torch import nn

CLASSES = 4


class Clips(torch.utils.data.Dataset):
    """48 pairs of a clip `(C, T, H, W)` and its class, each made from its index."""

    def __len__(self):
        """The number of clips."""
        return 48

    def __getitem__(self, index):
        """A clip of 10 frames of 20×20 pixels, and the direction of its motion."""
        generator = torch.Generator().manual_seed(index)
        picture = torch.rand(3, 20, 20, generator=generator)
        y, x = ((0, 2), (0, -2), (2, 0), (-2, 0))[index % CLASSES]
        frames = [picture.roll((y * t, x * t), dims=(1, 2)) for t in range(10)]
        return torch.stack(frames, dim=1), index % CLASSES


class Net(nn.Sequential):
    """Takes clips `(B, C, T, H, W)` of any shape and returns logits `(B, classes)`."""

    def __init__(self, classes=CLASSES, width=16):
        """A network of `width` channels."""
        super().__init__(
            *(nn.Conv3d(3, width, 3, padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU()),
            *(nn.Conv3d(width, width, 3, padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU()),
            *(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(width, classes)),
        )
