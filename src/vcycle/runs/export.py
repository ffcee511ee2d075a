"""Exports a trained model to one safetensors file, with its recipe, plan and evaluation in the metadata."""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

import vcycle
from vcycle.errors import CheckpointError
from vcycle.tasks.base import tasks
from vcycle.tasks.models import models_of
from vcycle.tasks.recipes import dump_recipe
from vcycle.tasks.saved_weights import METADATA, Provenance, SavedWeights
from vcycle.utils.atomic import atomic_write

__all__ = ["OWN", "export", "namings"]

OWN = "vcycle"


def namings() -> tuple[str, ...]:
    """Naming schemes for exported tensors: vcycle's, or that of a library in a model's key map."""
    maps = [found for task in tasks.values() for found in models_of(task.name).key_maps()]
    return (OWN, *dict.fromkeys(name for found in maps for name in found.libraries if name != OWN))


def export(saved: SavedWeights, file: Path, *, naming: str = OWN) -> int:
    """Write weights and their provenance to a safetensors file, atomically.

    Args:
        saved: From `vcycle.tasks.saved_weights.read_saved`.
        file: The output file; replaced if it exists.
        naming: The naming scheme of the tensors. vcycle can load each of them.

    Returns:
        The number of tensors.

    Raises:
        CheckpointError: if the provenance of the weights is unknown, a tensor has no name in the scheme, or the file
            cannot be written.
    """
    trained = saved.trained
    if trained is None:
        raise CheckpointError(
            f"weights {saved.weights.source} have no record of their training; accepted: a run folder"
        )
    tensors = {name: value.contiguous() for name, value in _renamed(saved.weights.state, trained, naming).items()}
    content = safetensors.torch.save(tensors, _metadata(trained))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as handle:
            handle.write(content)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be written: {error.strerror or error}") from None
    return len(tensors)


def _metadata(trained: Provenance) -> dict[str, str]:
    """The metadata. All keys but the first are vcycle's; other libraries expect the first."""
    said = {
        "version": vcycle.__version__,
        "recipe": dump_recipe(trained.recipe),
        "plan": trained.plan.to_json(),
        "classes": json.dumps(trained.classes),
        "step": str(trained.step),
    }
    if trained.evaluation is not None:
        said["evaluation"] = json.dumps(trained.evaluation)
    return {"format": "pt"} | {f"{METADATA}{key}": value for key, value in said.items()}


def _names(state: Mapping[str, Tensor], trained: Provenance, naming: str) -> Mapping[str, str]:
    """The name of each tensor in another library, if it has one."""
    model = trained.recipe.model
    spec = models_of(trained.recipe.task).find(model.name)
    key_map = spec.loaded_key_map()
    return {} if key_map is None else key_map.foreign_keys(state, naming, spec.read_options(model.name, model.options))


def _renamed(state: Mapping[str, Tensor], trained: Provenance, naming: str) -> Mapping[str, Tensor]:
    if naming == OWN:
        return state
    theirs = _names(state, trained, naming)
    nameless = [key for key in state if key not in theirs]
    if nameless:
        raise CheckpointError(
            f"{len(nameless):,} tensors of model {trained.recipe.model.name}, such as {nameless[0]}, have no name in "
            f"{naming}; accepted: vcycle"
        )
    return {theirs[key]: value for key, value in state.items()}
