"""BatchNorm of consecutive blocks in plain tensor operations, which `torch.compile` fuses into one kernel.

Torch's native kernels are faster in eager mode but opaque to the compiler, which cannot fuse them with the activation
that follows. Statistics and outputs equal those of the kernels, to rounding.
"""

import torch
from torch import Tensor

from vcycle.nn.blocks import Blocks
from vcycle.nn.moments import Moments, merge_moments

__all__ = ["normalise_blocks_traced"]


def normalise_blocks_traced(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, blocks: Blocks, eps: float
) -> tuple[Tensor, Moments]:
    """Return the output and the whole batch's moments.

    Args:
        x: Shape ``(B, C, ...)``.
        weight: Scale in the statistics' dtype, or None.
        bias: Shift in the statistics' dtype, or None.
        blocks: The blocks of the batch.
        eps: Added to the variance.
    """
    whole = blocks.equal * blocks.clips
    pieces = [(x[:whole], blocks.clips), (x[whole:], blocks.rest)]
    parts = [_equal_blocks(piece, weight, bias, clips, eps) for piece, clips in pieces if piece.shape[0]]
    outputs = [output for output, _ in parts]
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0], merge_moments([moments for _, moments in parts])


def _equal_blocks(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, clips: int, eps: float
) -> tuple[Tensor, Moments]:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    blocks = x.to(dtype).reshape(-1, clips, *x.shape[1:])
    axes = [1, *range(3, blocks.dim())]
    variances, means = torch.var_mean(blocks, axes, correction=0, keepdim=True)
    output = (blocks - means) * (variances + eps).rsqrt()
    channels = (-1, *[1] * (x.dim() - 2))
    if weight is not None:
        output = output * weight.view(channels)
    if bias is not None:
        output = output + bias.view(channels)
    values = clips * x.shape[2:].numel()
    between, mean = torch.var_mean(means.detach().flatten(1), 0, correction=0)
    count = values * blocks.shape[0]
    m2 = variances.detach().flatten(1).sum(0) * values + between * count
    return output.flatten(0, 1).to(x.dtype), Moments(count, mean, m2)
