"""Loads the tensors of a file into a model: either all of them fit, or loading fails."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights

__all__ = ["check_names", "check_values", "load_matching", "load_state"]

_SHOWN = 3
_COUNTER = "num_batches_tracked"
"""BatchNorm's counter, which not every library saves; it has no effect at a constant momentum."""


def load_matching(model: nn.Module, weights: Weights) -> None:
    """Load weights with the model's own names, in place; on the meta device they are only checked.

    Raises:
        CheckpointError: if a tensor is missing, unexpected or of another shape, or not finite.
    """
    own = model.state_dict()
    counters = [key for key in own if key.endswith(_COUNTER)]
    check_names(weights.state, own, f"weights {weights.source} do not fit the model", may_lack=counters)
    load_state(model, weights.state, weights.source)


def check_names(
    found: Mapping[str, Tensor], own: Mapping[str, Tensor], refusal: str, may_lack: Collection[str] = ()
) -> None:
    """Check the names and shapes of tensors against the model's.

    Args:
        found: The tensors.
        own: The model's.
        refusal: The beginning of the message.
        may_lack: Names that may be missing.

    Raises:
        CheckpointError: if a tensor is missing, unexpected or of another shape.
    """
    missing = [key for key in own if key not in found and key not in may_lack]
    odd = [key for key, value in found.items() if key not in own or own[key].shape != value.shape]
    faults = [
        f"{len(keys):,} {what} ({', '.join(keys[:_SHOWN])}{', …' if keys[_SHOWN:] else ''})"
        for what, keys in (("missing", missing), ("that do not fit", odd))
        if keys
    ]
    if faults:
        raise CheckpointError(f"{refusal}: tensors {' and '.join(faults)}")


def load_state(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy tensors into a model that has all their names.

    Raises:
        CheckpointError: if one is not of real, finite numbers.
    """
    own = model.state_dict()
    check_values(state, own, source)
    with torch.no_grad():
        for key, value in state.items():
            if not own[key].is_meta:
                own[key].copy_(value)


def check_values(found: Mapping[str, Tensor], own: Mapping[str, Tensor], source: str) -> None:
    """Check the layout and dtype of tensors against the model's, and reject values that are not finite.

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
