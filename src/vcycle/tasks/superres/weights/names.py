"""Translates the tensor names of a weights file to those of a model."""

from collections.abc import Mapping

from torch import Tensor, nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights
from vcycle.tasks.models import ModelSpec

__all__ = ["by_our_names"]


def by_our_names(weights: Weights, model: nn.Module, spec: ModelSpec) -> Mapping[str, Tensor]:
    """Return the tensors of a file by the names of a model or of one of its parts.

    Args:
        weights: What a file holds, under the model's own names or those of a library that its key map knows.
        model: The model.
        spec: What is known of it.

    Raises:
        CheckpointError: if the names are neither.
    """
    key_map = spec.loaded_key_map()
    if key_map is not None and (names := key_map.to_ours(weights.state)) is not None:
        return {ours: weights.state[theirs] for theirs, ours in names.items()}
    if any(key in weights.state for key in model.state_dict()):
        return weights.state
    libraries = ", ".join(["vcycle", *(key_map.libraries.values() if key_map else ())])
    raise CheckpointError(
        f"weights {weights.source} have unknown tensor names; accepted: the names of the model itself, of {libraries}"
    )
