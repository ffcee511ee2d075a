"""Recipe sections of the tasks that classify clips. The string under a field is its documentation.

An image is a clip of one frame. What only videos have (frames, time, several labels) is in
`vcycle.tasks.recognition.recipe`.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeFloat, PositiveInt
from pydantic_core import PydanticCustomError

from vcycle.config.recipe import RecipeBase
from vcycle.plan import Shape
from vcycle.section import Clips, PositiveFloat, Section, Side, as_mapping
from vcycle.tasks.classification.plan_options import PlansSection
from vcycle.train.config import Average, GradNorm, OptimizerSection

__all__ = [
    "AugmentSection",
    "ClassificationRecipe",
    "ColorJitterSection",
    "DecaySection",
    "ErasingSection",
    "EvaluationBase",
    "RandAugmentSection",
    "SamplingBase",
    "TrainingBase",
    "Views",
    "WarmupSection",
]


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    """Refuse a range whose ends are the wrong way round."""
    if pair[0] > pair[1]:
        raise PydanticCustomError("range", "two ascending numbers are accepted")
    return pair


Views = Annotated[int, Field(ge=1, le=1000)]
ClassName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""YAML reads the name of a class of digits as a number."""
ClassWeight = Annotated[PositiveFloat, Field(le=1e6)]
Amount = Annotated[float, Field(ge=0, le=10)]
BetaShape = Annotated[float, Field(ge=1e-3, le=1e3)]
"""α of a Beta distribution. Outside this range, 32-bit draws are always 0 or 1, or always 1/2."""


class SamplingBase(Section):
    """How the pixels of a clip are sampled."""

    short_side: tuple[Side, Side] | None = None
    """Range of the short side in pixels that crops are taken from, at the baseline's size (Kinetics: 256, 340).
    A coarse crop of the same frame may show less of it, as in the paper."""
    field: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of `short_side`: the range of a crop's size, as a fraction of the frame's short side, at any
    resolution."""
    flip: bool = True
    """Flip half of the clips horizontally. Turn it off if left and right differ in meaning."""
    antialias: bool = False
    """Low-pass filter before downscaling; the papers' bilinear interpolation does not."""
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    """Mean per channel to subtract, for values in 0..1; by default that of the initial weights' training, if known."""
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.225, 0.225, 0.225)
    """Standard deviation per channel to divide by; by default as for `mean`."""
    balanced: bool | Annotated[float, Field(ge=0, le=1)] = False
    """Balanced sampling: draw each class equally often in an epoch, which keeps its length. A number from 0 to 1 does
    so in part: a class of n items has a share proportional to n^(1 − this), so 0.5 takes square roots."""


class DecaySection(Section):
    """The decay of the LR schedule."""

    law: Literal["steps", "cosine", "constant"]
    """The LR schedule: drops at milestones, a half cosine, or a constant."""
    milestones: tuple[PositiveFloat, ...] = ()
    """When the LR drops, in the unit of the training's length."""
    gamma: PositiveFloat = 0.1
    """The factor on the LR at each drop."""
    factors: tuple[PositiveFloat, ...] | None = None
    """Instead of `gamma`: the factor on the peak LR from each milestone on."""
    floor: NonNegativeFloat = 0.0
    """The final LR of a cosine."""


class WarmupSection(Section):
    """Linear warmup: the LR rises to the value of the LR schedule."""

    length: NonNegativeFloat
    """Length in the unit of the training's length; 0 for none. A plan keeps it in samples."""
    start_lr: NonNegativeFloat = 0.0
    """The LR at the start; scaled with the batch as `training.lr` is."""


class TrainingBase(Section):
    """The baseline of constant shape that a plan is derived from."""

    batch: Clips
    """Clips per step (the global batch)."""
    size: Side
    """Side of the crop in pixels."""
    epochs: PositiveFloat | None = None
    """Length in epochs; set this or `steps`."""
    steps: PositiveInt | None = None
    """Length in steps; set this or `epochs`."""
    min_steps: PositiveInt | None = None
    """Minimum length in steps, for small datasets whose `epochs` have fewer; milestones and warmup are scaled along."""
    lr: PositiveFloat
    """Peak learning rate."""
    lr_batch: PositiveInt | None = None
    """The batch that `lr` and `warmup.start_lr` refer to; both are scaled linearly to another batch."""
    decay: Annotated[DecaySection, as_mapping("law")] = DecaySection(law="constant")
    """The LR decay."""
    warmup: WarmupSection | None = None
    """The LR warmup."""
    bn_batch: PositiveInt = 8
    """Clips over which BatchNorm computes its statistics."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing of the cross-entropy, for single-label clips."""
    class_weights: Literal["balanced"] | dict[ClassName, ClassWeight] | None = None
    """Weights of classes in the training loss, by name; 1 for those not named. `balanced` gives a class of n items a
    weight proportional to 1 / n, on average 1 per item. Evaluations are not weighted."""
    freeze: Literal["none", "batchnorm", "backbone"] = "none"
    """What to freeze: each BatchNorm (its statistics, scale and shift), or everything but the classifier."""
    precise_bn: PositiveInt | None = None
    """Precise BN: clips over which BatchNorm's running statistics are recomputed before each validation and at the end;
    by default the running statistics of training are used."""
    clip_grad_norm: GradNorm | None = None
    """Gradient clipping: scale the gradients of a step down to this norm if theirs is larger. The log records the norm
    before clipping as `grad_norm`."""
    ema: Average | None = None
    """Decay of an exponential moving average of the weights (EMA) per step of `batch` clips; the average is evaluated.
    With a larger batch it spans the same number of samples, not steps."""


class RandAugmentSection(Section):
    """RandAugment: a few image operations per clip, the same for all of its frames. Needs torchvision."""

    ops: Annotated[int, Field(gt=0, le=100)] = 2
    """Number of operations per clip."""
    magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    """Magnitude of each operation, out of 30."""


class ColorJitterSection(Section):
    """Color jitter: random colors per clip, the same for all of its frames. Needs torchvision."""

    brightness: Amount = 0.4
    """Range of the brightness: a factor from 1 − this to 1 + this, at least 0."""
    contrast: Amount = 0.4
    """Range of the contrast, likewise; around the mean of the whole clip."""
    saturation: Amount = 0.4
    """Range of the saturation, likewise."""
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Maximum shift of the hue in either direction, as a share of the color circle."""


class ErasingSection(Section):
    """Random erasing: one rectangle per clip, through all of its frames (Zhong et al. 2020). Needs torchvision."""

    probability: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of the clips that are erased."""
    area: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(gt=0, lt=1)]], AfterValidator(_ascending)
    ] = (0.02, 0.333)
    """Range of the rectangle's area, as a share of the frame's."""
    ratio: Annotated[tuple[PositiveFloat, PositiveFloat], AfterValidator(_ascending)] = (0.3, 3.33)
    """Range of the rectangle's height, in widths of it."""
    fill: Literal["noise", "mean"] = "noise"
    """Fill it with normal noise per pixel and frame, of `sampling.mean` and `sampling.std`, or with `sampling.mean`:
    after normalisation, standard normal noise or zeros."""


class AugmentSection(Section):
    """Augmentation beyond crops and flips; off by default."""

    randaugment: RandAugmentSection | None = None
    """Random image operations per clip."""
    color_jitter: ColorJitterSection | None = None
    """Random colors per clip."""
    erasing: Annotated[ErasingSection, as_mapping("probability")] | None = None
    """Random erasing of a rectangle per clip."""
    repeats: Annotated[int, Field(ge=1, le=64)] = 1
    """Repeated augmentation (Hoffer et al. 2020): clips of each item in a batch, each with its own crop, frames and
    augmentation. They count as samples: lengths and batches stay in clips, and a pass over the data takes this many
    epochs."""
    mixup: BetaShape | None = None
    """Mixup: blend each clip and its label with its neighbour in the batch, with a weight from Beta(α, α). Needs
    torchvision."""
    cutmix: BetaShape | None = None
    """CutMix: paste a rectangle of the neighbour, through all frames, into each clip; α as for `mixup`. If both are
    set, each step uses one of them with equal probability."""
    strength_at_half: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Regularisation that grows with the size (Tan and Le 2021): its strength at half the baseline's side, as a share
    of that at full size; linear in the side. It scales RandAugment's magnitude, the ranges of the color jitter, the
    probability of erasing, α of mixup and CutMix, and the rates of dropout and stochastic depth (drop path). At 1, the
    strength is the same at every size."""

    @property
    def needing_torchvision(self) -> str | None:
        """The first key that needs torchvision; None if none does."""
        names = ("randaugment", "color_jitter", "erasing", "mixup", "cutmix")
        return next((name for name in names if getattr(self, name) is not None), None)


class EvaluationBase(Section):
    """The evaluation of a trained model."""

    crops: Views = 1
    """Crops per clip, spread along the longer side of its frames; a single crop is the center."""
    size: Side | None = None
    """Side of a crop in pixels, also in validations during training; by default that of the baseline."""
    short_side: Side | None = None
    """Short side in pixels of the frames that crops are taken from; by default the lower end of
    `sampling.short_side`."""
    scores: Literal["auto", "softmax", "sigmoid"] = "auto"
    """The activation on the logits; `auto` is `sigmoid` for several labels per clip, else `softmax`."""
    combine: Literal["mean", "max"] = "mean"
    """How the scores of all views are combined: the mean, or the maximum per class."""


class ClassificationRecipe(RecipeBase):
    """What the recipes of tasks that classify clips have in common."""

    data: Any
    """The data."""
    sampling: SamplingBase
    """How clips are sampled."""
    training: TrainingBase
    """The baseline."""
    augment: AugmentSection = AugmentSection()
    """Augmentation beyond crops and flips."""
    optimizer: Annotated[OptimizerSection, as_mapping("name")] = OptimizerSection()
    """The optimizer."""
    plans: PlansSection = PlansSection()
    """Options of the plans."""
    evaluation: EvaluationBase = EvaluationBase()
    """The evaluation of a trained model."""

    @property
    def shape(self) -> Shape:
        """The shape of the baseline's clips; a single frame for images."""
        return Shape(1, self.training.size, self.training.size)

    @property
    def evaluated_clips(self) -> int:
        """Clips per item in the final evaluation."""
        return 1

    @property
    def multi_label(self) -> bool:
        """Whether an item may have any number of labels."""
        return False

    @property
    def fully_convolutional(self) -> bool:
        """Whether the evaluation classifies every position of a larger crop."""
        return False
