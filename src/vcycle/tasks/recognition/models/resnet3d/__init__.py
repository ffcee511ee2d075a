"""3-D ResNets of one pathway: I3D, Slow and C2D, plain or with non-local blocks, and small ones that train on a CPU.

Which of them it is depends on the extents in time (Carreira and Zisserman 2017; Wang et al. 2018).
"""

from typing import Any, Self

from pydantic import model_validator

from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import (
    Counts,
    Depths,
    Extents,
    Kernel,
    ModelOptions,
    Share,
    Whole,
    Wholes,
    check_per_stage,
)
from vcycle.tasks.models import ModelSpec
from vcycle.tasks.recognition.models.options import Block, NonLocalForm

__all__ = ["MODELS", "ResNet3dOptions"]


class ResNet3dOptions(ModelOptions):
    """Options of a 3-D ResNet. Lists have one value per stage."""

    stem_width: Whole | None = None
    """Channels of the stem; by default the first stage's width."""
    widths: Wholes = (16, 32, 64)
    """Inner channels of each stage; outside, a bottleneck has four times as many."""
    blocks: Depths = (1, 1, 1)
    """Residual blocks in each stage."""
    block: Block = "basic"
    """Kind of residual block."""
    temporal_kernels: Extents = (3, 3, 3)
    """Extent in time of each stage's convolutions; a list for a stage whose blocks differ, which repeats over them."""
    temporal_strides: Wholes | None = None
    """Stride in time of each stage; by default 1 throughout."""
    temporal_pool: Whole = 1
    """Frames that are max-pooled into one after the first stage."""
    stem_kernel: Kernel = (3, 3, 3)
    """Extents of the stem's convolution."""
    stem_pool: bool = False
    """Halve height and width once more after the stem."""
    nonlocal_every: Counts | None = None
    """Residual blocks per non-local block after them, in each stage, 0 for none; by default none at all."""
    nonlocal_form: NonLocalForm = "dot"
    """How non-local blocks weigh."""
    dropout: Share = 0.0
    """Dropout before the classifier."""
    zero_gamma: bool = True
    """Start each residual and non-local block as the identity."""
    channels_in: Whole = 3
    """Channels of the clip."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        check_per_stage(
            widths=self.widths,
            blocks=self.blocks,
            temporal_kernels=self.temporal_kernels,
            temporal_strides=self.temporal_strides,
            nonlocal_every=self.nonlocal_every,
        )
        return self

    @property
    def has_nonlocal(self) -> bool:
        """Whether there is any non-local block."""
        return any(self.nonlocal_every or ())


def _needs(options: ResNet3dOptions) -> ShapeConstraints:
    """Pooling in time, and a non-local block's in space, have no padding: below their extent nothing is left."""
    nonlocals = [stage for stage, every in enumerate(options.nonlocal_every or ()) if every]
    halvings = 1 + options.stem_pool + max(nonlocals, default=0)
    stride = (options.temporal_strides or (1,))[0]  # of the stage before the pooling; it is padded
    return ShapeConstraints(
        min_frames=(options.temporal_pool - 1) * stride + 1,
        min_size=2**halvings + 1 if nonlocals else 1,
    )


def _spec(**preset: Any) -> ModelSpec:
    return ModelSpec(
        build="vcycle.tasks.recognition.models.resnet3d.network:ResNet3d",
        options=ResNet3dOptions,
        preset=preset,
        needs=_needs,
        key_map="vcycle.tasks.recognition.weights.keys:RESNETS",
        token_dropping=False,
    )


_R50: dict[str, Any] = {
    "widths": (64, 128, 256, 512),
    "blocks": (3, 4, 6, 3),
    "block": "bottleneck",
    "stem_pool": True,
    "dropout": 0.5,
}
"""A ResNet-50 as the models of Kinetics have it."""
_I3D: dict[str, Any] = {
    **_R50,
    "stem_kernel": (5, 7, 7),
    "temporal_kernels": (3, (3, 1), (3, 1), (1, 3)),
    "temporal_pool": 2,
}
"""Time is seen by the stem and by every other block of the later stages, and halved after the first stage."""

MODELS = {
    "r3d_tiny": _spec(widths=(16, 32, 64), blocks=(1, 1, 1)),
    "r3d_small": _spec(widths=(32, 64, 128), blocks=(2, 2, 2), temporal_kernels=(3, 3, 3)),
    "i3d_r50": _spec(**_I3D),
    "i3d_r101": _spec(**_I3D | {"blocks": (3, 4, 23, 3)}),
    "i3d_nl_r50": _spec(**_I3D, nonlocal_every=(0, 2, 2, 0), nonlocal_form="dot"),
    "slow_r50": _spec(**_R50, stem_kernel=(1, 7, 7), temporal_kernels=(1, 1, 3, 3)),
    "c2d_r50": _spec(**_R50, stem_kernel=(1, 7, 7), temporal_kernels=(1, 1, 1, 1), temporal_pool=2),
}
