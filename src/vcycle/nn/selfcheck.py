"""Checks that the machine computes correctly."""

from functools import cache
from itertools import product

import torch
from torch.nn import functional as F

__all__ = ["conv3d_is_sound"]


def conv3d_is_sound(device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Check whether autocast to half precision computes correct weight gradients of 3-D convolutions on a device.

    Some CPU builds of torch return garbage, often finite and thus silent, for clips with fewer frames than the extent
    of the kernel, which coarse grids have. The failing cases differ between machines (some fail if 1 < depth < extent,
    some at depth 1 under a stem of 3 channels), so depths 1 to 4 are compared with fp32 for extents 3 and 5, stem-like
    and inner channels, and both memory formats. The garbage looks like uninitialised memory, so each case runs more
    than once.
    """
    return _check(str(torch.device(device)), dtype)


@cache
def _check(device: str, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    channels = ((3, 16), (16, 16), (64, 64))
    for extent, depth, (channels_in, channels_out) in product((3, 5), (1, 2, 3, 4), channels):
        clip = torch.randn((2, channels_in, depth, 7, 7), generator=generator).to(device)
        weight = torch.randn((channels_out, channels_in, extent, 3, 3), generator=generator).to(device)
        expected = _weight_gradient(clip, weight, None)
        for memory_format in (torch.contiguous_format, torch.channels_last_3d) * 2:
            got = _weight_gradient(clip.contiguous(memory_format=memory_format), weight, dtype)
            # NaN fails this comparison. The error of bf16 rounding is about 1 %, of garbage about 100 %.
            if not bool((got - expected).norm() <= 0.05 * expected.norm()):
                return False
    return True


def _weight_gradient(clip: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return the gradient of the mean square of a "same" convolution with respect to its weight."""
    weight = weight.clone().requires_grad_()
    padding = tuple(extent // 2 for extent in weight.shape[2:])
    with torch.autocast(clip.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        output = F.conv3d(clip, weight, padding=padding)
    # Use the mean: gradients of a sum are too large for fp16.
    (gradient,) = torch.autograd.grad(output.float().square().mean(), weight)
    return gradient
