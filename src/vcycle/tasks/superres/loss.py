"""The loss of super-resolution."""

from torch import Tensor

from vcycle.errors import DataError

__all__ = ["charbonnier"]


def charbonnier(output: Tensor, target: Tensor, *, eps_squared: float = 1e-12) -> Tensor:
    """Mean of ``sqrt(difference² + eps_squared)``, in fp32 whatever the inputs or autocast are.

    A mean over pixels and clips, not a sum: the gradient keeps its scale where the plan changes shape or batch.

    Args:
        output: any shape.
        target: of the same shape.
        eps_squared: as it stands under the root. In fp16 1e-12 would be 0, and the gradient of equal pixels NaN.

    Returns:
        One number, fp32.

    Raises:
        DataError: the shapes differ.

    Example:
        >>> import torch
        >>> round(charbonnier(torch.tensor([0.0, 1e-3, 0.5]), torch.zeros(3)).item(), 8)
        0.16700034
    """
    if output.shape != target.shape:
        raise DataError(f"output {tuple(output.shape)} and target {tuple(target.shape)}; accepted: equal shapes")
    difference = output.float() - target.float()
    return (difference.square() + eps_squared).sqrt().mean()
