"""Exports a trained model to one safetensors file, with its recipe, plan and evaluation in the metadata."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

import vcycle
from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights
from vcycle.tasks.base import tasks
from vcycle.tasks.models import is_shipped, models_of
from vcycle.tasks.recipes import dump_recipe
from vcycle.tasks.saved_weights import METADATA, Provenance, SavedWeights, read_saved
from vcycle.train.probe import outputs_at
from vcycle.utils.atomic import atomic_path

__all__ = ["OWN", "export", "namings"]

OWN = "vcycle"


def namings() -> tuple[str, ...]:
    """Naming schemes for exported tensors: vcycle's, or that of a library in a model's key map."""
    maps = [found for task in tasks.values() for found in models_of(task.name).key_maps()]
    return (OWN, *dict.fromkeys(name for found in maps for name in found.libraries if name != OWN))


def export(saved: SavedWeights, file: Path, *, naming: str = OWN, reload: bool = True) -> int:
    """Write weights and their provenance to a safetensors file, atomically.

    Args:
        saved: From `vcycle.tasks.saved_weights.read_saved`.
        file: The output file; replaced if it exists.
        naming: The naming scheme of the tensors. vcycle can load each of them.
        reload: Whether to load the file before it replaces another, and to compare its model with the run's.

    Returns:
        The number of tensors.

    Raises:
        CheckpointError: if the provenance of the weights is unknown, a tensor has no name in the scheme, the file
            cannot be written, or its model differs from the run's.
        UserCodeError: if the model cannot be built, or fails at a shape of the plan.
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
        with atomic_path(file) as partial:
            partial.write_bytes(content)
            if reload:
                _check_reloaded(saved.weights, read_saved(partial).weights, trained)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be written: {error.strerror or error}") from None
    return len(tensors)


def _check_reloaded(own: Weights, reloaded: Weights, trained: Provenance) -> None:
    """Compare the model of an exported file with the run's: all tensors and, of a user's network, the outputs.

    Equal tensors give equal outputs in a network whose tensors are all that it knows, which is true of shipped ones.
    """
    recipe = trained.recipe
    task, device = tasks[recipe.task], torch.device("cpu")
    models = []
    for weights in (own, reloaded):
        model = task.build_model(recipe, len(trained.classes), download=False)
        task.load_weights(model, weights, recipe)
        models.append(model.eval())
    state, again = (model.state_dict() for model in models)
    differ = [key for key in state if not torch.allclose(state[key], again[key], rtol=0, atol=0, equal_nan=True)]
    if differ:
        raise CheckpointError(f"{len(differ):,} exported tensors, such as {differ[0]}, differ from the run's")
    if is_shipped(recipe):
        return
    shapes = dict.fromkeys(cell.shape for cell in (*trained.plan.shapes, trained.plan.baseline_shape))
    objective = task.objective(recipe, len(trained.classes))
    found = [outputs_at(model, objective, shapes, device=device, doing="export") for model in models]
    for shape, ours, theirs in zip(shapes, *found, strict=True):
        if not _equal(ours, theirs):
            raise CheckpointError(f"the exported model's output on clips of {shape} differs from the run's")


def _equal(one: Any, other: Any) -> bool:
    """Whether two outputs of a model are equal; NaN is equal to NaN, and an output that is no tensor to any other."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return True
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


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
