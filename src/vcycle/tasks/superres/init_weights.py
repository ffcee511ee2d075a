"""The weights that a training of super-resolution begins with: a flow network, or a whole network."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights, read_weights
from vcycle.nn.weights.matching import load_matching, load_state
from vcycle.tasks.recognition.models.catalog import build_restorer
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.weights.keys import dialect_of, to_ours
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder

__all__ = ["build_model", "initialise", "load_trained"]

_NEW = "fusion."
"""What a file need not have: EDVR's attention is trained on top of an EDVR without."""
_SHOWN = 3


def build_model(recipe: SuperresRecipe) -> nn.Module:
    """The recipe's model, its weights drawn under `run.seed`."""
    torch.manual_seed(recipe.run.seed)
    return build_restorer(recipe.model.name, **recipe.model.options)


def initialise(model: nn.Module, recipe: SuperresRecipe, on_message: Callable[[str], None] = lambda _: None) -> bool:
    """Load a recipe's first weights into its model, in place; without any, it stays as it is.

    Returns:
        Whether all of the model was loaded.

    Raises:
        CheckpointError: if the weights cannot be read, do not fit or are no numbers to compute with.
    """
    if recipe.init.path is None:
        return False
    path = Path(recipe.init.path)
    state = _read(path)
    whole, part = model, "the network"
    if all(key.startswith("levels.") or key in ("mean", "std") for key in state):
        flow = getattr(model, "flow", None)
        if not isinstance(flow, nn.Module):
            raise CheckpointError(f"weights {path} are a flow network's, and model {recipe.model.name} has none")
        whole, part = flow, "the flow network"
    own = whole.state_dict()
    buffers = {name for name, _ in whole.named_buffers()}  # SpyNet's mean and std are the same in every file
    missing = [key for key in own if key not in state and key not in buffers and not key.startswith(_NEW)]
    odd = [key for key in state if key not in own or own[key].shape != state[key].shape]
    odd = [key for key in odd if not key.startswith(_NEW)]
    if missing or odd:
        faults = [
            f"{len(keys)} {what} ({', '.join(keys[:_SHOWN])}{', …' if keys[_SHOWN:] else ''})"
            for what, keys in (("missing", missing), ("that do not fit", odd))
            if keys
        ]
        raise CheckpointError(
            f"weights {path} are not of {part} of model {recipe.model.name}: tensors {' and '.join(faults)}"
        )
    fitting = {key: value for key, value in state.items() if key in own and own[key].shape == value.shape}
    load_state(whole, fitting, str(path))
    new = [key for key in own if key.startswith(_NEW) and key not in fitting]
    drawn = f"; {len(new)} tensors of the fusion are drawn" if new else ""
    on_message(f"init: {len(fitting)} tensors of {part} from {path}{drawn}")
    return whole is model and not new


def load_trained(model: nn.Module, weights: Weights) -> None:
    """Load a trained network's weights under vcycle's, BasicSR's or mmagic's names, in place.

    Raises:
        CheckpointError: if they do not fit.
    """
    state = weights.state
    if dialect_of(state) in ("basicsr", "mmagic"):
        state = {ours: state[theirs] for theirs, ours in (to_ours(state) or {}).items()}
    load_matching(model, Weights(state=state, source=weights.source))


def _read(path: Path) -> Mapping[str, Tensor]:
    """Tensors by our names: of a run the newest checkpoint's, averaged where there is an average."""
    if path.is_dir():
        found = latest_checkpoint(RunFolder(path).checkpoints)
        if found is None:
            raise CheckpointError(f"{path} has no checkpoint")
        return found[0].weights
    weights = read_weights(path)
    names = to_ours(weights.state, ema=True)
    if names is None:
        raise CheckpointError(
            f"weights {path} have names that are not known here; accepted: those of SpyNet, BasicVSR and EDVR"
        )
    return {ours: weights.state[theirs] for theirs, ours in names.items()}
