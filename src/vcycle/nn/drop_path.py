"""Stochastic depth (Huang et al. 2016)."""

import torch
from torch import Tensor, nn

__all__ = ["DropPath"]


class DropPath(nn.Module):
    """Drop a residual branch for random samples in training, and scale it up for the others.

    Args:
        drop_prob: Share of the samples that lose the branch.

    Example:
        >>> DropPath(0.5).eval()(torch.ones(2, 3)).sum().item()
        6.0
    """

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, branch: Tensor) -> Tensor:
        """Return the branch ``(B, …)``, with zeros for the samples that lose it."""
        if not self.training or self.drop_prob == 0:
            return branch
        kept = 1 - self.drop_prob
        shape = (len(branch), *[1] * (branch.dim() - 1))
        mask = torch.full(shape, kept, dtype=branch.dtype, device=branch.device).bernoulli()
        return branch * mask.div_(kept)

    def extra_repr(self) -> str:
        """The rate."""
        return f"{self.drop_prob:g}"
