"""SlowFast: a wide pathway at few frames beside a thin one at all frames (Feichtenhofer et al. 2019)."""

from typing import Any, Self

from pydantic import model_validator

from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import (
    Depths,
    Extents,
    ModelOptions,
    Odd,
    Share,
    Whole,
    Wholes,
    check_per_stage,
    options_error,
)
from vcycle.tasks.models import ModelSpec
from vcycle.tasks.recognition.models.options import Block

__all__ = ["MODELS", "SlowFastOptions"]


class SlowFastOptions(ModelOptions):
    """Options of SlowFast; the defaults are the R50 of the paper's 8×8 model. Lists have one value per stage."""

    stem_width: Whole = 64
    """Channels of the slow stem."""
    widths: Wholes = (64, 128, 256, 512)
    """Inner channels of each slow stage; outside, a bottleneck has four times as many."""
    blocks: Depths = (3, 4, 6, 3)
    """Residual blocks in each stage."""
    block: Block = "bottleneck"
    """Kind of residual block."""
    alpha: Whole = 4
    """Frames of the fast pathway per frame of the slow one."""
    beta_inverse: Whole = 8
    """Channels of the slow pathway per channel of the fast one."""
    fusion_kernel: Odd = 7
    """Extent in time of the fusing convolutions."""
    fusion_ratio: Whole = 2
    """Channels that a fusion gives to the slow pathway, per channel of the fast one."""
    slow_kernels: Extents = (1, 1, 3, 3)
    """Extent in time of each slow stage's convolutions; a list for a stage whose blocks differ, which repeats over
    them."""
    fast_kernels: Extents = (3, 3, 3, 3)
    """The same of the fast pathway."""
    stem_size: Odd = 7
    """Extent in space of the stems' convolutions."""
    stem_pool: bool = True
    """Halve height and width once more after the stems."""
    dropout: Share = 0.5
    """Dropout before the classifier."""
    zero_gamma: bool = True
    """Start each residual block as the identity."""
    channels_in: Whole = 3
    """Channels of the clip."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        check_per_stage(
            widths=self.widths, blocks=self.blocks, slow_kernels=self.slow_kernels, fast_kernels=self.fast_kernels
        )
        for width in (self.stem_width, *self.widths):
            if width % self.beta_inverse:
                raise options_error(f"width {width} is not a multiple of beta_inverse {self.beta_inverse}")
        return self


def _needs(options: SlowFastOptions) -> ShapeConstraints:
    return ShapeConstraints(min_frames=options.alpha, frames_multiple=options.alpha)


def _spec(**preset: Any) -> ModelSpec:
    return ModelSpec(
        build="vcycle.tasks.recognition.models.slowfast.network:SlowFast",
        options=SlowFastOptions,
        preset=preset,
        needs=_needs,
        key_map="vcycle.tasks.recognition.weights.keys:RESNETS",
        token_dropping=False,
    )


_R101 = (3, 4, 23, 3)
_FIRST_6 = (3,) * 6 + (1,) * 17
"""Of the 23 blocks, those that see time: as many as an R50 has, hence the 50-50 in the name."""

MODELS = {
    "slowfast_tiny": _spec(
        stem_width=16,
        widths=(16, 32, 64),
        blocks=(1, 1, 1),
        block="basic",
        beta_inverse=4,
        fusion_kernel=5,
        slow_kernels=(1, 3, 3),
        fast_kernels=(3, 3, 3),
        stem_size=5,
        stem_pool=False,
        dropout=0.0,
    ),
    "slowfast_4x16_r50": _spec(alpha=8, fusion_kernel=5),
    "slowfast_8x8_r50": _spec(),
    "slowfast_16x8_r50": _spec(),
    "slowfast_8x8_r101": _spec(fusion_kernel=5, blocks=_R101),
    "slowfast_16x8_r101_50_50": _spec(
        fusion_kernel=5,
        blocks=_R101,
        slow_kernels=(1, 1, _FIRST_6, 3),
        fast_kernels=(3, 3, _FIRST_6, 3),
    ),
}
