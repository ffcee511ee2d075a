"""A super-resolution network from a file of its weights alone: what it is follows from their names and shapes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import read_weights
from vcycle.nn.weights.matching import check_values
from vcycle.tasks.superres.models.basicvsr import BasicVSR
from vcycle.tasks.superres.models.deform import OFFSETS_A_GROUP
from vcycle.tasks.superres.models.edvr import EDVR
from vcycle.tasks.superres.weights.keys import dialect_of, to_ours

__all__ = ["OpenedNetwork", "open_network"]


@dataclass(frozen=True, kw_only=True)
class OpenedNetwork:
    """A network with its weights, in evaluation mode."""

    model: BasicVSR | EDVR
    description: str
    """What it is, in a line."""


def open_network(path: Path) -> OpenedNetwork:
    """Open BasicVSR or EDVR from a file that BasicSR, mmagic or vcycle has written.

    Raises:
        CheckpointError: if it cannot be read, holds the weights of something else or not all of them, or numbers that
            none can compute with.
    """
    weights = read_weights(path)
    names = to_ours(weights.state, ema=True)
    if names is None:
        raise CheckpointError(
            f"weights {path} have names that are not known here; accepted: those of BasicVSR and EDVR"
        )
    state = {ours: weights.state[theirs] for theirs, ours in names.items()}
    model, description = _network(state, path)
    own = model.state_dict()
    missing = [key for key in own if key not in state]
    odd = [key for key in state if key not in own or own[key].shape != state[key].shape]
    if missing or odd:
        faults = [
            f"{len(keys)} {what} ({', '.join(keys[:3])}{', …' if keys[3:] else ''})"
            for what, keys in (("missing", missing), ("that do not fit", odd))
            if keys
        ]
        raise CheckpointError(f"weights {path} are not all of {description}: tensors {' and '.join(faults)}")
    check_values(state, own, str(path))
    # Half precision is for storing: what is restored comes in fp32.
    model.load_state_dict({key: value.float() for key, value in state.items()}, assign=True)
    source = {"vcycle": "vcycle", "basicsr": "BasicSR", "mmagic": "mmagic"}[dialect_of(weights.state) or "vcycle"]
    return OpenedNetwork(model=model.eval(), description=f"{description}, named as {source} does")


def _network(state: Mapping[str, Tensor], path: Path) -> tuple[BasicVSR | EDVR, str]:
    """The network that the weights are of, its own not drawn."""
    with torch.device("meta"):
        if "backward_trunk.first.weight" in state:
            channels, blocks = (
                len(state["backward_trunk.first.weight"]),
                _count(state, r"backward_trunk\.blocks\.(\d+)\."),
            )
            flow = any(key.startswith("flow.") for key in state)
            basic = BasicVSR(
                blocks=blocks, channels=channels, head_channels=_head(state, path), flow="spynet" if flow else "none"
            )
            aligned = "" if flow else ", without optical flow"
            return basic, f"BasicVSR of {blocks} blocks and {channels} channels{aligned}"
        if "first.weight" in state:
            channels = len(state["first.weight"])
            attention = "fusion.fuse.weight" in state
            fused = state.get("fusion.fuse.weight" if attention else "fusion.weight")
            window = 0 if fused is None else fused.shape[1] // channels
            offsets = len(state.get("align.deform.offsets.weight", ()))
            groups = offsets // OFFSETS_A_GROUP
            if window % 2 and groups and channels % groups == 0:
                edvr = EDVR(
                    window=window,
                    channels=channels,
                    groups=groups,
                    front_blocks=_count(state, r"front\.(\d+)\."),
                    back_blocks=_count(state, r"back\.(\d+)\."),
                    attention=attention,
                    head_channels=_head(state, path),
                )
                return (
                    edvr,
                    f"EDVR of {window} frames and {channels} channels, {'with' if attention else 'without'} TSA",
                )
    raise CheckpointError(
        f"weights {path} are neither all of BasicVSR nor all of EDVR: a part, such as a flow network alone"
    )


def _count(state: Mapping[str, Tensor], pattern: str) -> int:
    """How many layers are numbered: a gap among the numbers shows as missing tensors, and costs nothing."""
    return len({found[1] for key in state if (found := re.match(pattern, key))})


def _head(state: Mapping[str, Tensor], path: Path) -> int:
    if "head.hr.weight" not in state:
        raise CheckpointError(f"weights {path} lack the last layers of the network")
    return len(state["head.hr.weight"])
