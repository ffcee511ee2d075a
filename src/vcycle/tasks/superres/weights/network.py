"""Loads a super-resolution model from bare weights: names and shapes of the tensors determine its options."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import read_weights
from vcycle.nn.weights.matching import check_names, check_values
from vcycle.registry import import_attribute
from vcycle.tasks.superres.models import MODELS

__all__ = ["OpenedNetwork", "open_network"]


@dataclass(frozen=True, kw_only=True)
class OpenedNetwork:
    """A network with its weights, in evaluation mode."""

    model: nn.Module
    description: str
    """What it is, in a line."""


def open_network(path: Path) -> OpenedNetwork:
    """Load a model whose options can be inferred from its weights, such as BasicVSR and EDVR.

    Args:
        path: A weights file from vcycle or another library.

    Raises:
        CheckpointError: if it cannot be read, holds other or incomplete weights, or values that are not finite.
    """
    weights = read_weights(path)
    specs = [(name, MODELS.find(name)) for name in MODELS.names()]
    readable = [(name, spec, key_map) for name, spec in specs if spec.infer and (key_map := spec.loaded_key_map())]
    known = False
    for name, spec, key_map in readable:
        names = key_map.to_ours(weights.state)
        if names is None:
            continue
        known = True
        state = {ours: weights.state[theirs] for theirs, ours in names.items()}
        found = import_attribute(spec.infer or "", f"model {name!r}")(state)
        if found is None:
            continue
        options, description = found
        with torch.device("meta"):  # its own weights are not drawn
            model = MODELS.build(name, **options)
        own = model.state_dict()
        check_names(state, own, f"weights {path} do not fit {description}")
        check_values(state, own, str(path))
        # Half precision is for storage: frames are restored in fp32.
        model.load_state_dict({key: value.float() for key, value in state.items()}, assign=True)
        library = key_map.libraries.get(key_map.dialect_of(weights.state) or "", "vcycle")
        return OpenedNetwork(model=model.eval(), description=f"{description}, named as {library} does")
    accepted = ", ".join(name for name, _, _ in readable)
    if known:
        raise CheckpointError(
            f"weights {path} are only a part of a model, such as a flow network; accepted: all weights of one of "
            f"{accepted}"
        )
    raise CheckpointError(f"weights {path} have unknown tensor names; accepted: those of {accepted}")
