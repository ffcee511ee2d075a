"""VideoMAE (Tong et al. 2022): transformers' networks, under the names of the public checkpoints."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from vcycle.plan import ShapeConstraints
from vcycle.tasks.classification.torchvision_models import IMAGENET
from vcycle.tasks.model_options import Accepted, Depth, ModelOptions, Share, Whole, options_error
from vcycle.tasks.models import ModelSpec
from vcycle.tasks.recognition.weights.record import hugging_face_record

__all__ = ["MODELS", "VideoMAEOptions"]

TUBELET, PATCH = 2, 16
"""Frames and side of a token."""

_RENAMED = (("attention.q_bias", "attention.query.bias"), ("attention.v_bias", "attention.value.bias"))
"""Names in the public checkpoints, and in newer versions of transformers."""
_PRETRAINING = ("decoder.", "encoder_to_decoder.", "mask_token", "videomae.layernorm.")
"""What pretraining has and fine-tuning drops. The norm goes with the decoder: the mean of the tokens has its own."""

_Clip = Annotated[
    tuple[
        Annotated[int, Field(ge=TUBELET, le=512, multiple_of=TUBELET)],
        Annotated[int, Field(ge=PATCH, le=1024, multiple_of=PATCH)],
    ],
    Accepted(f"[frames, side], multiples of {TUBELET} up to 512 and of {PATCH} up to 1,024"),
]


class VideoMAEOptions(ModelOptions):
    """Options of VideoMAE."""

    width: Whole = 768
    """Channels of a token; inside the MLPs four times as many."""
    depth: Depth = 12
    """Transformer blocks."""
    heads: Whole = 12
    """Attention heads; the width is a multiple."""
    pooling: Literal["mean", "first"] = "mean"
    """What the classifier sees: the mean of all tokens, normalised, as in the paper; or the first token."""
    dropout: Share = 0.0
    """Dropout before the classifier."""
    drop_path: Share = 0.0
    """Stochastic depth: the rate of the last block; it grows linearly from 0 at the first."""
    trained_clip: _Clip = (16, 224)
    """Frames and side of the clips that the weights were trained on; positions are resampled from these."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.heads or self.width % 2:
            raise options_error(f"width {self.width} and heads {self.heads}; accepted: an even multiple of the heads")
        return self


def _name_read(key: str, own: Collection[str]) -> str | None:
    """The network's name of a tensor in a file; None for a tensor of pretraining alone.

    Args:
        key: The name in the file.
        own: The network's names, which depend on the version of transformers.
    """
    for pair in _RENAMED:
        for theirs, ours in (pair, pair[::-1]):
            if key.endswith(theirs) and (renamed := key.removesuffix(theirs) + ours) in own:
                return renamed
    return None if key not in own and key.startswith(_PRETRAINING) else key


def _recorded(what: str, config: Mapping[str, Any]) -> Any:
    return getattr(hugging_face_record(config), what)


def _spec(width: int, depth: int, heads: int) -> ModelSpec:
    return ModelSpec(
        build="vcycle.tasks.recognition.models.videomae.network:VideoMAE",
        options=VideoMAEOptions,
        preset={"width": width, "depth": depth, "heads": heads},
        needs=ShapeConstraints(min_frames=TUBELET, frames_multiple=TUBELET, min_size=PATCH, size_multiple=PATCH),
        name_read=_name_read,
        base="videomae.",
        new_parts=("fc_norm",),
        brings=IMAGENET,
        unseen={what: partial(_recorded, what) for what in ("heads", "trained_clip")},
    )


MODELS = {"videomae_s": _spec(384, 12, 6), "videomae_b": _spec(768, 12, 12), "videomae_l": _spec(1024, 24, 16)}
