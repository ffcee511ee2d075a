"""Non-local blocks: every position of a clip attends to all others (Wang et al. 2018)."""

from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.tasks.recognition.models.options import NonLocalForm

__all__ = ["NonLocalBlock"]


class NonLocalBlock(nn.Module):
    """``x + norm(out(weights(theta(x), phi(x')) g(x')))`` with x' halved in height and width by max-pooling.

    Args:
        channels: of the clip; half of them inside.
        form: how places are weighed: ``dot`` divides products by their number (the paper's dot-product form),
            ``softmax`` takes the softmax of products scaled by the root of the inner channels (embedded Gaussian, as in
            the public configurations).
    """

    def __init__(self, channels: int, form: NonLocalForm) -> None:
        super().__init__()
        self.form = form
        inner = max(channels // 2, 1)
        self.theta = nn.Conv3d(channels, inner, 1)
        self.phi = nn.Conv3d(channels, inner, 1)
        self.g = nn.Conv3d(channels, inner, 1)
        self.out = nn.Conv3d(inner, channels, 1)
        self.norm = nn.BatchNorm3d(channels)
        self.pool = nn.MaxPool3d((1, 2, 2))

    @property
    def last_norm(self) -> nn.BatchNorm3d:
        """The BatchNorm just before the sum."""
        return self.norm

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, ``(B, C, T, H, W)``; height and width at least 2."""
        pooled = self.pool(x)
        queries, keys, values = _places(self.theta(x)), _places(self.phi(pooled)), _places(self.g(pooled))
        if self.form == "softmax":
            seen = F.scaled_dot_product_attention(queries, keys, values)
        else:
            seen = _dot(queries, keys, values)
        output: Tensor = x + self.norm(self.out(seen.transpose(1, 2).reshape(*queries.shape[::2], *x.shape[2:])))
        return output


def _places(x: Tensor) -> Tensor:
    """``(B, C, T, H, W)`` as ``(B, THW, C)``; no copy where channels are last in memory."""
    return x.flatten(2).transpose(1, 2)


def _dot(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return ``queries keysᵀ values / places`` in the cheaper order, as nothing stands between the two products."""
    (many, channels), places = queries.shape[1:], keys.shape[1]
    keys = keys / places
    if many * places < channels * (many + places) // 2:
        return queries @ keys.transpose(1, 2) @ values
    return queries @ (keys.transpose(1, 2) @ values)
