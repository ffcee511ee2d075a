"""EDVR (Wang et al. 2019): the center frame of a window, from all of its frames aligned by deformable convolutions."""

from typing import Self

from pydantic import model_validator

from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import Depth, ModelOptions, Odd, Whole, options_error
from vcycle.tasks.models import ModelSpec, ParameterRole

__all__ = ["MODELS", "SMALLEST", "EDVROptions"]

SMALLEST = 3
"""Least height and width in pixels: below, the padding to a multiple of 4 has nothing to mirror."""


class EDVROptions(ModelOptions):
    """Options of EDVR; the defaults are its middle size, EDVR-M."""

    window: Odd = 5
    """Frames that it takes, of which it restores the center one."""
    channels: Whole = 64
    """Channels of the features."""
    groups: Whole = 8
    """Groups of channels that have offsets of their own."""
    front_blocks: Depth = 5
    """Residual blocks before the alignment."""
    back_blocks: Depth = 10
    """Residual blocks after the fusion."""
    attention: bool = True
    """Fuse by attention in time and space (TSA); otherwise by one convolution."""
    head_channels: Whole = 64
    """Channels of the last layers, at the full size: 64 in the published networks, whatever `channels` is."""
    zero_last: bool = True
    """Start from enlarged frames: see `Upsampler`."""
    checkpointing: bool = False
    """Recompute activations in the backward pass."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.channels % self.groups:
            raise options_error(
                f"channels is {self.channels}, groups is {self.groups}; accepted: groups that divide the channels"
            )
        return self


def _has_part(name: str, part: str) -> bool:
    return part in name.split(".")


MODELS = {
    name: ModelSpec(
        build="vcycle.tasks.superres.models.edvr.network:EDVR",
        task="superresolution",
        options=EDVROptions,
        preset={"attention": attention},
        needs=lambda options: ShapeConstraints(window=options.window, min_size=SMALLEST),
        key_map="vcycle.tasks.superres.weights.keys:KEY_MAP",
        roles={
            "offsets": ParameterRole(holds=lambda name: _has_part(name, "offsets")),
            # Frozen at first where attention is trained on top of an EDVR without it.
            "backbone": ParameterRole(
                holds=lambda name: not _has_part(name, "fusion"), present=lambda options: options.attention
            ),
        },
        new_parts=("fusion",),
        infer="vcycle.tasks.superres.models.edvr.network:options_of",
    )
    for name, attention in {"edvr_m": True, "edvr_m_wotsa": False}.items()
}
