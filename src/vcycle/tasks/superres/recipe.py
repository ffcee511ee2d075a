"""The recipe schema of super-resolution. The string under a field is its documentation.

Sections are as in `vcycle.tasks.recognition.recipe`; sizes are in low-resolution pixels.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from vcycle.config.recipe import PlansBase, RecipeBase
from vcycle.data.config import LoadingSection
from vcycle.section import Clips, Frames, PositiveFloat, Section, Side, as_mapping
from vcycle.train.config import Average, GradNorm, OptimizerSection

__all__ = ["CyclePlan", "SuperresData", "SuperresRecipe", "SuperresTraining"]


class SuperresData(LoadingSection):
    """The clips: the high-resolution frames, and the source of their low-resolution frames."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """REDS, Vimeo-90K, or a folder with `train`, `val` and optionally `test` folders of clips (image folders, videos,
    or the output of `vcycle prepare --to tiles`). Without these folders, all clips are training clips."""
    layout: str = "auto"
    """The dataset layout: `reds`, `vimeo90k`, `clips` or one that you have registered; `auto` detects it from the files
    in the folder."""
    low: Annotated[str, Field(min_length=1)] | None = None
    """The same clips at low resolution, in the layout of `path` (of Vimeo-90K, of its `sequences`). By default those of
    REDS or of the tiles; otherwise they are computed by `degradation`."""
    val: Annotated[str, Field(min_length=1)] | None = None
    """A separate folder of validation clips."""
    test: Annotated[str, Field(min_length=1)] | None = None
    """A separate folder of test clips: REDS, Vimeo-90K, Vid4 and UDM10 are detected."""
    degradation: Literal["bicubic", "bd"] = "bicubic"
    """How low-resolution frames are computed: MATLAB's bicubic, or blur and subsampling; ×4."""
    epoch: PositiveInt | None = None
    """Samples per epoch, the unit of progress and `run.validate_every`; by default one per clip. The literature counts
    one per frame of REDS."""


class SuperresSampling(Section):
    """How a crop is sampled from a clip: consecutive frames, not resized."""

    flip: bool = True
    """Flip half of the clips horizontally and, independently, half of them vertically."""
    transpose: bool = True
    """Transpose half of the clips."""
    mirrored: bool = False
    """The second half of a clip is its first half reversed in time (Vimeo-90K: 14 frames from 7)."""


class SuperresInit(Section):
    """The initial weights."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A file with a flow network (SpyNet) or a whole model, from BasicSR, mmagic or vcycle; or a run folder."""
    needed: bool = True
    """Refuse to freeze a part without pretrained weights."""


class MinibatchSection(Section):
    """A larger minibatch (Lin et al. 2022, "Large Minibatch Training")."""

    factor: PositiveInt = 1
    """The factor on the batch."""
    scale_lr: bool = True
    """Multiply the LR by the same factor."""
    shorten: bool = True
    """Divide the steps by the same factor, so that the number of samples stays the same."""


class FactorWarmupSection(Section):
    """LR warmup: a factor on the LR of the first steps."""

    steps: PositiveInt = 5000
    """Number of steps; a larger minibatch does not change it."""
    law: Literal["linear", "constant"] = "linear"
    """A linear ramp from 0, or a constant factor."""
    factor: PositiveFloat = 0.1
    """The factor of a constant warmup."""


class FlowSection(Section):
    """The training of the flow network."""

    lr_factor: Annotated[float, Field(ge=0)] = 0.125
    """Its LR, as a factor on the LR of the rest."""
    frozen_steps: Annotated[int, Field(ge=0)] = 5000
    """Number of first steps with a frozen flow network; a larger minibatch does not change it."""


class BackboneSection(Section):
    """The training of all parts of EDVR but the fusion, to add attention to an EDVR trained without it."""

    lr_factor: Annotated[float, Field(ge=0)] = 1.0
    """Its LR, as a factor on the LR of the fusion."""
    frozen_steps: Annotated[int, Field(ge=0)] = 50_000
    """Number of first steps with a frozen backbone; a larger minibatch does not change it."""


class SuperresTraining(Section):
    """The baseline of constant shape that a plan is derived from."""

    batch: Clips
    """Clips per step (the global batch)."""
    frames: Frames
    """Frames per clip."""
    size: Side
    """Side of the crop in low-resolution pixels."""
    steps: PositiveInt
    """Length in steps."""
    lr: PositiveFloat
    """Peak learning rate."""
    lr_floor: Annotated[float, Field(ge=0)] = 1e-7
    """The final LR of the cosine schedule."""
    epsilon: PositiveFloat = 1e-6
    """The Charbonnier loss is quadratic for differences below this value and linear above, for pixels in 0..1. Short
    trainings benefit from a larger value, such as 0.03."""
    minibatch: MinibatchSection = MinibatchSection()
    """A larger minibatch."""
    warmup: FactorWarmupSection | None = None
    """The LR warmup."""
    flow: FlowSection | None = None
    """The training of the flow network, if the model has one; by default like the rest."""
    backbone: BackboneSection | None = None
    """The training of all but the fusion of an EDVR with attention; by default like the fusion."""
    clip_grad_norm: GradNorm | None = None
    """Gradient clipping: scale the gradients of a step down to this norm if theirs is larger. The log records the norm
    before clipping as `grad_norm`."""
    ema: Average | None = None
    """Decay of an exponential moving average of the weights (EMA) per step of `batch` clips; the average is evaluated.
    With a larger minibatch it spans the same number of samples, not steps."""


class AdamSection(OptimizerSection):
    """The optimizer. Weight decay skips biases; the plan sets the LR at every step."""

    name: str = "adam"
    """`adam`, `adamw`, `sgd` (with momentum), any other class of `torch.optim` (case does not matter), or the
    `module:Class` of another package, such as `timm.optim:Muon`."""
    betas: tuple[Average, Average] = (0.9, 0.99)
    """The betas of Adam, AdamW and similar optimizers."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay; biases are excluded."""


class StagePlan(Section):
    """Options of every plan with stages."""

    lr_scaling: Literal["sqrt", "linear", "none"] = "sqrt"
    """How the LR scales with a batch that grows as the shape shrinks (`plan=NAME+scaled`)."""
    stage_lrs: tuple[PositiveFloat, ...] | None = None
    """The peak LR of each stage, at the enlarged minibatch, instead of the baseline's."""


class SpatialPlan(StagePlan):
    """Crops grow; clips keep their length."""

    sizes: tuple[Side, ...] | None = None
    """Sides of the crops, small to full; by default half (at least 32) and full."""


class TemporalPlan(StagePlan):
    """Clips grow longer; crops keep their size."""

    frames: tuple[Frames, ...] | None = None
    """Frames per clip, few to all; by default half (at least 6), three quarters and all."""


class CyclePlan(SpatialPlan, TemporalPlan):
    """Crops and clips grow."""


class SynchronousPlan(StagePlan):
    """Crops and clips grow at the same step."""

    sizes: tuple[Side, ...] | None = None
    """Sides of the crops, small to full, as many as `frames`; by default half (at least 32) and full."""
    frames: tuple[Frames, ...] | None = None
    """Frames per clip, few to all, as many as `sizes`; by default half (at least 6) and all. If only one of the two
    lists is set, the other gets as many values, evenly spaced from half to full."""


class SuperresPlans(PlansBase):
    """Options of the plans; a training uses those of its plan."""

    hierarchical: CyclePlan = CyclePlan()
    """A temporal cycle within each spatial stage: the paper's method."""
    synchronous: SynchronousPlan = SynchronousPlan()
    """Both grow at the same step."""
    spatial: SpatialPlan = SpatialPlan()
    """The spatial cycle alone."""
    temporal: TemporalPlan = TemporalPlan()
    """The temporal cycle alone."""


class SuperresEvaluation(Section):
    """The protocol of PSNR and SSIM. Both are measured on whole clips of 8-bit frames."""

    channels: Literal["rgb", "y"] = "rgb"
    """All three color channels, or luma (BT.601)."""
    frames: Literal["all", "center"] = "all"
    """Frames per clip that count (Vimeo-90K: the center frame)."""
    crop: Annotated[int, Field(ge=0, le=16_384)] = 0
    """Border in pixels to leave out on each side."""
    chunk: Frames | None = None
    """Frames restored at a time, to bound memory; by default the whole clip."""
    overlap: Annotated[int, Field(ge=0, le=65_536)] = 4
    """Extra frames on either side of a chunk."""
    validation_clips: PositiveInt = 4
    """Number of clips in a validation during training, spread over the validation split."""


class SuperresRecipe(RecipeBase):
    """A complete recipe of super-resolution, from clips to PSNR."""

    task: Literal["superresolution"]
    """The task."""
    data: Annotated[SuperresData, as_mapping("path")] = SuperresData()
    """The clips."""
    sampling: SuperresSampling = SuperresSampling()
    """How crops are sampled."""
    init: Annotated[SuperresInit, as_mapping("path")] = SuperresInit()
    """The initial weights."""
    training: SuperresTraining
    """The baseline."""
    optimizer: Annotated[AdamSection, as_mapping("name")] = AdamSection()
    """The optimizer."""
    plan: str = "hierarchical"
    """The plan: `hierarchical`, `synchronous`, `spatial` or `temporal`, with `+scaled` for a batch that grows as the
    shape shrinks; `constant`; `baseline`, without the larger minibatch; `control:PLAN`. `@FACTOR` sets its length."""
    plans: SuperresPlans = SuperresPlans()
    """Options of the plans."""
    evaluation: SuperresEvaluation = SuperresEvaluation()
    """The evaluation protocol."""

    paths: ClassVar[tuple[str, ...]] = (*RecipeBase.paths, "data.low")
