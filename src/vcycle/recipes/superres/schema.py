"""What a recipe of super-resolution may say. The string under a field is its documentation.

Sections are as in `vcycle.recipes.schema`; sizes are in low-resolution pixels.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from vcycle.recipes.schema import Average, ModelSection, RunSection
from vcycle.recipes.section import Clips, Frames, PositiveFloat, Seconds, Section, Side, as_mapping

__all__ = ["CyclePlan", "RestorationData", "RestorationTraining", "SuperresRecipe"]


class RestorationData(Section):
    """The clips: at high resolution, and how their low-resolution frames come about."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """REDS, Vimeo-90K, or a folder with `train`, `val` and perhaps `test`, each of clips (folders of pictures, videos,
    or what `vcycle prepare --to tiles` wrote). Without such folders its clips are all trained on."""
    layout: Literal["auto", "reds", "vimeo90k", "clips"] = "auto"
    """How the clips lie; recognised by the files in the folder."""
    low: Annotated[str, Field(min_length=1)] | None = None
    """The same clips at low resolution, laid out as those of `path` (of Vimeo-90K, as its `sequences`). By default what
    came with REDS or is in the tiles, else they are made."""
    val: Annotated[str, Field(min_length=1)] | None = None
    """A folder of validation clips instead."""
    test: Annotated[str, Field(min_length=1)] | None = None
    """A folder of test clips instead: REDS, Vimeo-90K, Vid4 and UDM10 are recognised."""
    degradation: Literal["bicubic", "bd"] = "bicubic"
    """What makes low-resolution frames: MATLAB's bicubic, or blur and subsampling. Always by 4."""
    epoch: PositiveInt | None = None
    """Samples that count as an epoch, in which progress and `run.validate_every` are told; by default one of each
    clip. The field counts REDS by its frames."""
    workers: Annotated[int, Field(ge=0, le=1024)] = 2
    """Processes that load clips; 0 loads in the training process."""
    timeout: Seconds = 60.0
    """Seconds that a worker may take over a clip. Then both are replaced: the worker, and the clip by another."""
    prefetch: Clips | None = None
    """Clips to load ahead where batches are smallest, by default 4 for each worker; as many batches elsewhere, never
    less than two."""


class RestorationSampling(Section):
    """How a crop is taken from a clip: consecutive frames, pictures as they are."""

    flip: bool = True
    """Flip half of the clips left to right and, independently, half of them upside down."""
    transpose: bool = True
    """Exchange rows and columns in half of the clips."""
    mirrored: bool = False
    """A clip is half of its frames, followed by their mirror image (Vimeo-90K: 14 frames of 7)."""


class RestorationInit(Section):
    """The weights to begin with."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A file with a flow network (SpyNet) or a whole network, BasicSR's, mmagic's or ours; or the folder of a run."""
    needed: bool = True
    """Refuse to freeze what has no weights."""


class MinibatchSection(Section):
    """A larger minibatch (Lin et al. 2022, "Large Minibatch Training")."""

    factor: PositiveInt = 1
    """How many times the batch it is."""
    scale_lr: bool = True
    """Multiply the LR by as much."""
    shorten: bool = True
    """Divide the steps by as much, so that the samples stay the same."""


class FactorWarmupSection(Section):
    """A factor on the LR of the first steps, once."""

    steps: PositiveInt = 5000
    """How many steps; a larger minibatch does not change them."""
    law: Literal["linear", "constant"] = "linear"
    """A straight line from 0, or one factor."""
    factor: PositiveFloat = 0.1
    """The factor of a constant warm-up."""


class FlowSection(Section):
    """How the flow network learns."""

    lr_factor: Annotated[float, Field(ge=0)] = 0.125
    """Its LR, as a factor of the others'."""
    frozen_steps: Annotated[int, Field(ge=0)] = 5000
    """Steps before it learns at all; a larger minibatch does not change them."""


class BackboneSection(Section):
    """How all but EDVR's fusion learns, where its attention is trained on top of an EDVR without."""

    lr_factor: Annotated[float, Field(ge=0)] = 1.0
    """Its LR, as a factor of the fusion's."""
    frozen_steps: Annotated[int, Field(ge=0)] = 50_000
    """Steps before it learns at all; a larger minibatch does not change them."""


class RestorationTraining(Section):
    """The baseline: the training of constant shape that a plan is derived from."""

    batch: Clips
    """Clips in a step."""
    frames: Frames
    """Frames of a clip."""
    size: Side
    """Side of the crop in low-resolution pixels."""
    steps: PositiveInt
    """Length in steps."""
    lr: PositiveFloat
    """Peak learning rate."""
    lr_floor: Annotated[float, Field(ge=0)] = 1e-7
    """Where its cosine ends."""
    epsilon: PositiveFloat = 1e-6
    """Where the Charbonnier loss turns from a square into a line, in light of 0..1: differences below it count little.
    Short trainings gain by more, such as 0.03."""
    minibatch: MinibatchSection = MinibatchSection()
    """A larger minibatch."""
    warmup: FactorWarmupSection | None = None
    """How the LR starts."""
    flow: FlowSection | None = None
    """How the flow network learns, where the model has one; by default as the rest."""
    backbone: BackboneSection | None = None
    """How all but the fusion of an EDVR with attention learns; by default as the fusion."""
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Average the weights over the steps, and evaluate the average: what is left of it after a step of `batch` clips. A
    larger minibatch looks back over as many samples, not steps."""


class AdamSection(Section):
    """The optimizer; biases are not decayed."""

    name: Literal["adam", "adamw"] = "adam"
    """Adam, or AdamW."""
    betas: tuple[Average, Average] = (0.9, 0.99)
    """Its averages."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decay of weights that are not biases."""


class StagePlan(Section):
    """Options of every plan that has stages."""

    lr_scaling: Literal["sqrt", "linear", "none"] = "sqrt"
    """How the LR follows a batch that grows as the shape shrinks (`plan=NAME+scaled`)."""
    stage_lrs: tuple[PositiveFloat, ...] | None = None
    """A peak LR for each stage, with the minibatch as it is, in place of the baseline's."""


class SpatialPlan(StagePlan):
    """Crops grow, clips keep their length."""

    sizes: tuple[Side, ...] | None = None
    """Sides of the crops, small to full; by default half (32 at least) and all."""


class TemporalPlan(StagePlan):
    """Clips grow longer, crops keep their size."""

    frames: tuple[Frames, ...] | None = None
    """Frames of the clips, few to all; by default half (6 at least), three quarters and all."""


class CyclePlan(SpatialPlan, TemporalPlan):
    """Crops and clips grow."""


class SynchronousPlan(StagePlan):
    """Crops and clips grow at the same step."""

    sizes: tuple[Side, ...] | None = None
    """Sides of the crops, small to full, as many as `frames`; by default half (32 at least) and all."""
    frames: tuple[Frames, ...] | None = None
    """Frames of the clips, few to all, as many as `sizes`; by default half (6 at least) and all. Where one of the two
    lists alone is given, the other has as many values, in even parts from half to all."""


class RestorationPlans(Section):
    """Options of the plans, used by whichever is chosen."""

    hierarchical: CyclePlan = CyclePlan()
    """A temporal cycle within each spatial stage: the paper's method."""
    synchronous: SynchronousPlan = SynchronousPlan()
    """Both grow at the same step."""
    spatial: SpatialPlan = SpatialPlan()
    """The spatial cycle alone."""
    temporal: TemporalPlan = TemporalPlan()
    """The temporal cycle alone."""


class RestorationEvaluation(Section):
    """What PSNR and SSIM are measured on: whole clips, as they would be written to a file."""

    channels: Literal["rgb", "y"] = "rgb"
    """All three colours, or luma (BT.601)."""
    frames: Literal["all", "centre"] = "all"
    """Frames of a clip that count (Vimeo-90K: the centre one)."""
    crop: Annotated[int, Field(ge=0, le=16_384)] = 0
    """Pixels that are left out along each border."""
    chunk: Frames | None = None
    """Frames restored at a time, which bounds memory; by default the whole clip."""
    overlap: Annotated[int, Field(ge=0, le=65_536)] = 4
    """Frames more on either side of a chunk."""
    validation_clips: PositiveInt = 4
    """Clips that are evaluated during training, spread over the validation split."""


class SuperresRecipe(Section):
    """A whole training of super-resolution, from clips to PSNR."""

    task: Literal["superresolution"]
    """What is learned."""
    description: str = ""
    """What the recipe is, in a line."""
    data: Annotated[RestorationData, as_mapping("path")] = RestorationData()
    """The clips."""
    sampling: RestorationSampling = RestorationSampling()
    """How crops are taken."""
    model: Annotated[ModelSection, as_mapping("name")]
    """The network."""
    init: Annotated[RestorationInit, as_mapping("path")] = RestorationInit()
    """The weights to begin with."""
    training: RestorationTraining
    """The baseline."""
    optimizer: Annotated[AdamSection, as_mapping("name")] = AdamSection()
    """The optimizer."""
    plan: str = "hierarchical"
    """Which plan: `hierarchical`, `synchronous`, `spatial` or `temporal`, with `+scaled` for a batch that grows as the
    shape shrinks; `constant`; `baseline`, without the larger minibatch; `control:PLAN`. `@FACTOR` sets its length."""
    plans: RestorationPlans = RestorationPlans()
    """Options of the plans."""
    evaluation: RestorationEvaluation = RestorationEvaluation()
    """How quality is measured."""
    run: RunSection = RunSection()
    """How the run is carried out."""
