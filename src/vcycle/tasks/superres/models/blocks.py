"""What the super-resolution networks are put together from. Frames and features are ``(N, C, H, W)``."""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from vcycle.errors import PlanError

__all__ = [
    "ResidualBlock",
    "Upsampler",
    "check_video",
    "conv3x3",
    "count_layers",
    "grouped",
    "head_channels",
    "leaky",
    "recomputed",
    "residual_blocks",
    "start_leaky",
    "start_on_structure",
]

_SLOPE = 0.1


def check_video(video: Tensor) -> None:
    """Check that the input is a batch of videos.

    Raises:
        PlanError: if it is not a float tensor ``(B, T, 3, H, W)``, or is empty.
    """
    if video.dim() != 5 or video.shape[2] != 3 or 0 in video.shape or not video.is_floating_point():
        raise PlanError(
            f"video of shape {tuple(video.shape)}, {video.dtype}; accepted: (B, T, 3, H, W) of floats, none empty"
        )


def conv3x3(channels_in: int, channels: int, *, stride: int = 1) -> nn.Conv2d:
    """Return a 3 × 3 convolution that keeps the size at stride 1."""
    return nn.Conv2d(channels_in, channels, 3, stride, 1)


def grouped(x: Tensor, size: int) -> Tensor:
    """Return ``(B, size, …)`` from ``(B · size, …)``, without copying."""
    return x.view(-1, size, *x.shape[1:])


def leaky(x: Tensor) -> Tensor:
    """Leaky ReLU of slope 0.1, in place."""
    return F.leaky_relu(x, _SLOPE, inplace=True)


def start_leaky(conv: nn.Conv2d) -> None:
    """Initialise a convolution before a leaky ReLU so that the signal's scale is kept (He et al. 2015).

    PyTorch's default weights are smaller by a factor of 2.4: after several such layers, the biases dominate.
    """
    nn.init.kaiming_normal_(conv.weight, a=_SLOPE)
    nn.init.zeros_(conv.bias)  # type: ignore[arg-type]  # it has one


def start_on_structure(conv: nn.Conv2d) -> None:
    """Zero-initialise the mean component of a convolution on frames (its first three input channels).

    Flat regions, most of a frame, then add nothing to the upscaled frames at first, which are already correct there.
    """
    with torch.no_grad():
        weight = conv.weight[:, :3]
        weight -= weight.mean(dim=(1, 2, 3), keepdim=True)


def recomputed(function: Callable[..., Tensor], *inputs: Tensor, on: bool) -> Tensor:
    """Call a function, with activation checkpointing if ``on``: the backward pass recomputes it from its inputs."""
    if not on or not torch.is_grad_enabled():
        return function(*inputs)
    output: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
    return output


class ResidualBlock(nn.Module):
    """``x + conv(relu(conv(x)))``, which starts near the identity.

    Args:
        channels: in, inside and out.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels, channels)
        self.conv2 = conv3x3(channels, channels)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight)
            with torch.no_grad():
                conv.weight.mul_(0.1)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the same shape."""
        output: Tensor = x + self.conv2(F.relu(self.conv1(x), inplace=True))
        return output


def residual_blocks(count: int, channels: int) -> nn.Sequential:
    """Return a sequence of ``count`` residual blocks."""
    return nn.Sequential(*(ResidualBlock(channels) for _ in range(count)))


class Upsampler(nn.Module):
    """Maps features to the residual of the upscaled frames: two ×2 pixel shuffles, then two convolutions.

    Args:
        channels_in: channels of the features.
        channels: channels from the second upscaling on; half of a small model's compute is here.
        zero_last: initialise the last layer with zeros, and keep the signal's scale in the layers before. Otherwise
            initialise as the published models do, which start with a noisy residual.
    """

    def __init__(self, channels_in: int, channels: int = 64, *, zero_last: bool = True) -> None:
        super().__init__()
        self.up1 = conv3x3(channels_in, 4 * channels_in)
        self.up2 = conv3x3(channels_in, 4 * channels)
        self.hr = conv3x3(channels, channels)
        self.last = conv3x3(channels, 3)
        if zero_last:
            for conv in (self.up1, self.up2, self.hr):
                start_leaky(conv)
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, features: Tensor) -> Tensor:
        """Return ``(N, 3, 4H, 4W)``."""
        x = leaky(F.pixel_shuffle(self.up1(features), 2))
        x = leaky(F.pixel_shuffle(self.up2(x), 2))
        output: Tensor = self.last(leaky(self.hr(x)))
        return output


def count_layers(state: Mapping[str, Tensor], pattern: str) -> int:
    """Count the numbered layers in a state, at least 1. A gap in the numbers shows as missing tensors."""
    return max(len({found[1] for key in state if (found := re.match(pattern, key))}), 1)


def head_channels(state: Mapping[str, Tensor]) -> int:
    """Return the channels of an :class:`Upsampler` whose tensors are in a state under ``head``, at least 1."""
    return max(len(state.get("head.up2.weight", ())) // 4, 1)
