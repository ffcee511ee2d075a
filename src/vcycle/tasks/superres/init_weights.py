"""Builds super-resolution models and loads their initial weights: a flow network or a whole model."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights, read_weights
from vcycle.nn.weights.matching import check_names, load_matching, load_state
from vcycle.tasks.models import ModelSpec
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.weights.names import by_our_names
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder

__all__ = ["build_model", "initialise", "load_trained"]


def build_model(recipe: SuperresRecipe) -> nn.Module:
    """Build the recipe's model, initialised with `run.seed`."""
    torch.manual_seed(recipe.run.seed)
    return MODELS.build(recipe.model.name, **recipe.model.options)


def load_trained(model: nn.Module, weights: Weights, recipe: SuperresRecipe) -> None:
    """Load a trained model's weights in place, with the parameter names of vcycle, BasicSR or mmagic.

    Raises:
        CheckpointError: if they do not fit.
    """
    state = by_our_names(weights, model, MODELS.find(recipe.model.name))
    load_matching(model, Weights(state=state, source=weights.source))


def initialise(model: nn.Module, recipe: SuperresRecipe, on_message: Callable[[str], None] = lambda _: None) -> bool:
    """Load a recipe's initial weights, if it sets any, into its model, in place.

    Returns:
        Whether the whole model was loaded.

    Raises:
        CheckpointError: if the weights cannot be read, do not fit or are not finite.
    """
    if recipe.init.path is None:
        return False
    path, spec = Path(recipe.init.path), MODELS.find(recipe.model.name)
    state = _read(path, model, spec)
    whole, part = model, "the network"
    for name, is_part in spec.parts.items():
        if is_part(state):
            found = getattr(model, name, None)
            if not isinstance(found, nn.Module):
                raise CheckpointError(f"weights {path} are for a {name} network; model {recipe.model.name} has none")
            whole, part = found, f"the {name} network"
    new_parts = tuple(f"{name}." for name in spec.new_parts)
    own = whole.state_dict()
    buffers = {name for name, _ in whole.named_buffers()}  # SpyNet's mean and std are the same in every file
    check_names(
        {key: value for key, value in state.items() if not key.startswith(new_parts)},
        {key: value for key, value in own.items() if not key.startswith(new_parts)},
        f"weights {path} are not of {part} of model {recipe.model.name}",
        may_lack=buffers,
    )
    fitting = {key: value for key, value in state.items() if key in own and own[key].shape == value.shape}
    load_state(whole, fitting, str(path))
    new = [key for key in own if key.startswith(new_parts) and key not in fitting]
    drawn = f"; {len(new)} tensors of the {' and the '.join(spec.new_parts)} are drawn" if new else ""
    on_message(f"init: {len(fitting)} tensors of {part} from {path}{drawn}")
    return whole is model and not new


def _read(path: Path, model: nn.Module, spec: ModelSpec) -> Mapping[str, Tensor]:
    """Read tensors by our names; of a run, those of the newest checkpoint, averaged (EMA) if available."""
    if path.is_dir():
        found = latest_checkpoint(RunFolder(path).checkpoints)
        if found is None:
            raise CheckpointError(f"{path} has no checkpoint")
        return found[0].weights
    return by_our_names(read_weights(path), model, spec)
