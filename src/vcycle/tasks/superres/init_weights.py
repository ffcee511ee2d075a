"""The weights that a training of super-resolution begins with: a flow network, or a whole network."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import read_weights
from vcycle.tasks.recognition.weights.loading import check_values
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.weights.keys import to_ours
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder

__all__ = ["check_init", "initialise"]

_NEW = "fusion."
"""What a file need not have: EDVR's attention is trained on top of an EDVR without."""
_SHOWN = 3


def check_init(recipe: SuperresRecipe) -> None:
    """Check that a recipe's first weights fit its model, without building it.

    Raises:
        CheckpointError: if the weights cannot be read, do not fit or are no numbers to compute with.
    """
    from vcycle.tasks.superres.build import build_model

    if recipe.init.path is not None:
        with torch.device("meta"):
            model = build_model(recipe, recipe.run.seed)
        initialise(model, recipe)


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
    check_values(fitting, own, str(path))
    with torch.no_grad():
        for key, value in fitting.items():
            if not own[key].is_meta:
                own[key].copy_(value)
    new = [key for key in own if key.startswith(_NEW) and key not in fitting]
    drawn = f"; {len(new)} tensors of the fusion are drawn" if new else ""
    on_message(f"init: {len(fitting)} tensors of {part} from {path}{drawn}")
    return whole is model and not new


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
