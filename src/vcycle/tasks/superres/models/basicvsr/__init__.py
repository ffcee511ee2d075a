"""BasicVSR (Chan et al. 2021): features carried through a clip from both of its ends, aligned by optical flow."""

from collections.abc import Collection
from typing import Literal

from vcycle.tasks.model_options import Depth, ModelOptions, Whole
from vcycle.tasks.models import ModelSpec, ParameterRole

__all__ = ["MODELS", "BasicVSROptions"]


class BasicVSROptions(ModelOptions):
    """Options of BasicVSR."""

    blocks: Depth = 30
    """Residual blocks of each direction's trunk: 30 in BasicVSR."""
    channels: Whole = 64
    """Channels of the features that are carried."""
    head_channels: Whole = 64
    """Channels of the last layers, at the full size: 64 in the published networks, whatever `channels` is."""
    flow: Literal["spynet", "none"] = "spynet"
    """The flow network; `none` carries features without aligning them, for small experiments."""
    zero_last: bool = True
    """Start from enlarged frames: see `Upsampler`."""
    checkpointing: bool = False
    """Recompute activations in the backward pass. Memory then grows by two features a frame."""


def _is_flow(keys: Collection[str]) -> bool:
    """Whether keys are those of a SpyNet alone."""
    return all(key.startswith("levels.") or key in ("mean", "std") for key in keys)


MODELS = {
    name: ModelSpec(
        build="vcycle.tasks.superres.models.basicvsr.network:BasicVSR",
        task="superresolution",
        options=BasicVSROptions,
        preset={"blocks": blocks},
        key_map="vcycle.tasks.superres.weights.keys:KEY_MAP",
        roles={
            "flow": ParameterRole(
                holds=lambda name: "flow" in name.split("."), present=lambda options: options.flow == "spynet"
            )
        },
        parts={"flow": _is_flow},
        infer="vcycle.tasks.superres.models.basicvsr.network:options_of",
    )
    for name, blocks in {"basicvsr": 30, "basicvsr_m": 15}.items()  # Lin et al. 2022 do not give M's depth: 15 is ours
}
