"""The loss of super-resolution."""

from torch import Tensor

from vcycle.errors import DataError

__all__ = ["charbonnier"]


def charbonnier(output: Tensor, target: Tensor, *, eps_squared: float = 1e-12) -> Tensor:
    """Return the mean of ``sqrt(difference² + eps_squared)``, computed in fp32 also under autocast.

    It averages over pixels and clips, so the gradient keeps its scale when the plan changes shape or batch.

    Args:
        output: Tensor of any shape.
        target: Tensor of the same shape.
        eps_squared: ε². In fp16, 1e-12 rounds to 0 and the gradient of equal pixels is NaN; hence fp32.

    Returns:
        fp32 scalar.

    Raises:
        DataError: If the shapes differ.

    Example:
        >>> import torch
        >>> round(charbonnier(torch.tensor([0.0, 1e-3, 0.5]), torch.zeros(3)).item(), 8)
        0.16700034
    """
    if output.shape != target.shape:
        raise DataError(f"output {tuple(output.shape)} and target {tuple(target.shape)}; accepted: equal shapes")
    difference = output.float() - target.float()
    return (difference.square() + eps_squared).sqrt().mean()
