"""Deformable convolution (Zhu et al. 2019): a kernel whose taps are moved and weighed at every pixel."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import RecipeError
from vcycle.tasks.superres.models.blocks import conv3x3
from vcycle.utils.versions import pip_torchvision

__all__ = ["OFFSETS_A_GROUP", "OFFSET_LIMIT", "DeformableConv", "deform_flops", "offset_magnitude"]

OFFSET_LIMIT = 50.0
"""Pixels: above this mean magnitude, offsets have diverged and training will not recover by itself."""

_TAPS = 9
OFFSETS_A_GROUP = 3 * _TAPS
"""Numbers that are predicted for each group at a pixel: two of an offset and one weight, for each tap."""


class DeformableConv(nn.Module):
    """A 3 × 3 convolution whose offsets and weights per tap are predicted from other features.

    It starts as a plain convolution of half the strength: offsets of 0, tap weights of a half.

    Args:
        channels: in and out, and of the features that offsets are predicted from.
        groups: parts of the channels with offsets of their own; they divide the channels.

    Raises:
        RecipeError: torchvision is not installed.
    """

    def __init__(self, channels: int, groups: int = 8) -> None:
        super().__init__()
        self._convolve = _torchvision()
        self.weight = nn.Parameter(torch.empty(channels, channels, 3, 3))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.offsets = conv3x3(channels, OFFSETS_A_GROUP * groups)
        self.magnitude: Tensor | None = None
        """Mean magnitude of the last call's offsets, in pixels: a number on the device, no part of the state."""
        bound = (channels * _TAPS) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.zeros_(self.offsets.weight)
        nn.init.zeros_(self.offsets.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, x: Tensor, guide: Tensor) -> Tensor:
        """Return features like ``x``, ``(N, channels, H, W)``, convolved as the guide's features say."""
        # In fp32 whatever autocast says: bf16 has no tenth of a pixel beyond 16, and not every build takes mixed types.
        predicted = self.offsets(guide).float()
        third = predicted.shape[1] // 3
        # Of three equal parts, the first two are the offsets, vertical and horizontal in turn.
        offsets, taps = predicted.split((2 * third, third), dim=1)
        self.magnitude = offsets.detach().abs().mean()
        output = self._convolve(x.float(), offsets, self.weight.float(), self.bias.float(), 1, 1, 1, taps.sigmoid())
        return output.to(x.dtype)


def offset_magnitude(model: nn.Module) -> dict[str, Tensor]:
    """Return the mean magnitude of the offsets of each deformable layer's last call, in pixels, by the layer's name.

    The numbers stay on the device, so that asking at every step costs no synchronisation; above
    :data:`OFFSET_LIMIT` a layer has diverged. Empty for models without such layers, or before the first call.
    """
    layers = ((name, module) for name, module in model.named_modules() if isinstance(module, DeformableConv))
    return {name: layer.magnitude for name, layer in layers if layer.magnitude is not None}


def deform_flops() -> dict[Any, Callable[..., int]]:
    """Return how deformable convolutions count, as a ``custom_mapping`` of ``FlopCounterMode``, which skips them.

    Multiplications and additions of the kernel alone, as for plain convolutions; empty without torchvision.
    """
    try:
        _torchvision()
    except RecipeError:
        return {}
    return {
        torch.ops.torchvision.deform_conv2d: _forward_flops,
        torch.ops.torchvision._deform_conv2d_backward: _backward_flops,
    }


def _forward_flops(x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    count, _, height, width = out_shape
    channels, channels_in, tall, wide = weight
    return 2 * int(count * height * width * channels * channels_in * tall * wide)


def _backward_flops(gradient: Any, x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Of the gradients of inputs and of weights, each as much as the forward pass."""
    return 2 * _forward_flops(x, weight, out_shape=gradient)


def _torchvision() -> Callable[..., Tensor]:
    try:
        from torchvision.ops import deform_conv2d
    except (ImportError, RuntimeError) as error:  # a build for another torch fails when it registers its operators
        raise RecipeError(
            f"deformable convolutions are torchvision's, which is not installed: {pip_torchvision()} ({error})"
        ) from error
    convolve: Callable[..., Tensor] = deform_conv2d
    return convolve
