"""The values of tensors that a file holds, checked before a model takes them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vcycle.errors import CheckpointError

__all__ = ["check_values"]


def check_values(found: Mapping[str, Tensor], own: Mapping[str, Tensor], source: str) -> None:
    """Refuse tensors of another kind than a model's, and values that are not finite.

    Args:
        found: A file's tensors, by the model's names.
        own: The model's tensors.
        source: The file, for messages.

    Raises:
        CheckpointError: naming the first.
    """
    for key, value in found.items():
        plain = value.layout == torch.strided and not value.is_quantized
        if not plain or (own[key].is_floating_point() and not value.is_floating_point()):
            kind = str(value.layout if value.layout != torch.strided else value.dtype).removeprefix("torch.")
            raise CheckpointError(f"weights {source}: {key} is {kind}; accepted: dense tensors of real numbers")
        if value.is_floating_point() and not value.isfinite().all():
            raise CheckpointError(
                f"weights {source}: {key} holds numbers that are not finite: the training behind them had failed"
            )
