"""What a recipe file may say. The string under a field is its documentation.

Sections mirror the rooms: `data` and `sampling` (what a clip is), `model`, `training` (the recipe a user has
today: the baseline), `optimizer`, and `plan` (how the training moves through its grids). Keys that are not
listed here are refused.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from vcycle.data.layouts import LayoutName

__all__ = [
    "CascadePlan",
    "ConstantPlan",
    "DataSection",
    "DecaySection",
    "DigitsSection",
    "ModelSection",
    "MultigridPlan",
    "OptimizerSection",
    "PlansSection",
    "Recipe",
    "RunSection",
    "SamplingSection",
    "TrainingSection",
    "WarmupSection",
]

Factor = Annotated[float, Field(gt=0, le=1000)]
Fractions = list[tuple[float, float]]


def _as_mapping(key: str) -> BeforeValidator:
    """Let `section: value` stand for `section: {key: value}`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict | BaseModel) else {key: value})


class Section(BaseModel):
    """A part of a recipe. Unknown keys are refused; a number may be written as text (YAML reads 1e-4 as text)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `on` and `yes` as true, which Python counts as 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("not_a_switch", "true and false are accepted only by switches")
        return value


class DigitsSection(Section):
    """The embedded demonstration set: digit scans moving over textures, written as H.264 files.

    The fields are those of `vcycle.data.digits.DigitSettings`.
    """

    digits: tuple[int, ...] = (2, 7)
    """Which digits; the class is the pair of digit and motion."""
    motions: tuple[str, ...] = ("left", "right", "up", "down", "clockwise", "counterclockwise")
    """Which motions."""
    clips: dict[str, PositiveInt] = {"train": 100, "val": 25, "test": 50}
    """Clips of each class in each split."""
    frames: PositiveInt = 24
    """Frames of each file."""
    size: PositiveInt = 40
    """Side of each file in pixels."""
    digit_size: PositiveFloat = 18.0
    """Side of the digit in pixels."""
    speed: tuple[PositiveFloat, PositiveFloat] = (0.02, 0.04)
    """Sides of the frame that the digit moves in one frame."""
    radius: tuple[PositiveFloat, PositiveFloat] = (0.1, 0.16)
    """Radius of the turning motions, in sides of the frame."""
    jitter: NonNegativeFloat = 0.01
    """Shake of the digit from frame to frame, in sides."""
    contrast: tuple[PositiveFloat, PositiveFloat] = (0.25, 0.5)
    """How far the digit's luma is from the background's, in 0..1."""
    texture: NonNegativeFloat = 0.1
    """Strength of the background's texture, in 0..1."""
    noise: NonNegativeFloat = 0.02
    """Strength of the noise of each frame, in 0..1."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Keys every draw."""

    @property
    def train_clips(self) -> int:
        """Length of the training split."""
        return self.clips.get("train", 0) * len(self.digits) * len(self.motions)


class DataSection(Section):
    """The videos."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A folder of videos (`train/CLASS/*.mp4`, or `CLASS/*.mp4` with a keyed split), a folder with list files or with
    a set's official files, a list file, or what `vcycle prepare` wrote."""
    layout: LayoutName = "auto"
    """How the videos lie; recognised by the files in the folder."""
    fold: Annotated[int, Field(ge=1, le=3)] | None = None
    """Which official fold of UCF101 or HMDB51; by default 1."""
    val: str | None = None
    """A list file of validation videos, where `path` is a list file."""
    test: str | None = None
    """A list file of test videos, where `path` is a list file."""
    root: str | None = None
    """Where the videos of lists lie; by default beside them."""
    digits: DigitsSection | None = None
    """Make the embedded demonstration set instead."""
    clips: PositiveInt | None = None
    """Length of the training set, for plans where the videos are not at hand; counted otherwise."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of each class for validation, where the data has no split of its own: in UCF101 and HMDB51, of the
    training list."""
    cache: PositiveInt | None = None
    """Decode every video once, to this short side in pixels, into a file that is mapped into memory."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that load clips; 0 loads in the training process."""
    timeout: PositiveFloat = 60.0
    """Seconds that a worker may take over a clip. Then both are replaced: the worker, and the clip by another."""
    prefetch: PositiveInt | None = None
    """Clips to load ahead, by default 4 for each worker; never less than two batches."""


class SamplingSection(Section):
    """How a clip is taken from a video."""

    stride: PositiveFloat | None = None
    """Distance of a clip's frames at the baseline's shape, in frames at `fps`."""
    fps: PositiveFloat | None = None
    """Frame rate that `stride` is counted in; by default the video's own."""
    span: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of a stride: the range of the clip's duration, as fractions of the video's."""
    short_side: tuple[PositiveInt, PositiveInt] | None = None
    """Range of the short side in pixels that crops are taken from, at the baseline's size (Kinetics: 256, 340).
    A coarse crop of the same picture may show less of it, as in the paper."""
    field: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of `short_side`: the fraction of the picture's short side that a crop shows, at any size."""
    flip: bool = True
    """Mirror half of the clips; off where left and right differ in meaning."""
    antialias: bool = False
    """Low-pass before shrinking; the papers' bilinear interpolation does not."""
    eval_short_side: PositiveInt | None = None
    """Short side that evaluation crops the center of; by default the lower end of `short_side`."""
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    """Mean per channel that is subtracted, of values in 0..1."""
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)
    """Standard deviation per channel that is divided by."""


class ModelSection(Section):
    """The network."""

    name: str
    """A model of vcycle's or of torchvision's."""
    options: dict[str, Any] = {}
    """Options of that model."""


class DecaySection(Section):
    """How the LR falls."""

    law: Literal["steps", "cosine", "constant"]
    """Drops at milestones, half a cosine, or none."""
    milestones: tuple[PositiveFloat, ...] = ()
    """Where the LR drops, in the unit of the training's length."""
    gamma: PositiveFloat = 0.1
    """What each drop multiplies it by."""
    factors: tuple[PositiveFloat, ...] | None = None
    """Instead of `gamma`: what the LR is multiplied by from each milestone on."""
    floor: Annotated[float, Field(ge=0)] = 0.0
    """Where a cosine ends."""


class WarmupSection(Section):
    """How the LR starts: a straight line up to the LR that is due."""

    length: PositiveFloat
    """In the unit of the training's length. A plan keeps it in samples."""
    start_lr: Annotated[float, Field(ge=0)] = 0.0
    """Where it starts."""


class TrainingSection(Section):
    """The baseline: the training of constant shape that a plan is derived from."""

    batch: PositiveInt
    """Clips in a step."""
    frames: PositiveInt
    """Frames of a clip."""
    size: PositiveInt
    """Side of the crop in pixels."""
    epochs: PositiveFloat | None = None
    """Length in epochs; either this or `steps`."""
    steps: PositiveInt | None = None
    """Length in steps; either this or `epochs`."""
    lr: PositiveFloat
    """Peak learning rate."""
    lr_batch: PositiveInt | None = None
    """The batch that `lr` is stated for; another batch scales it linearly."""
    decay: Annotated[DecaySection, _as_mapping("law")] = DecaySection(law="constant")
    """How the LR falls."""
    warmup: WarmupSection | None = None
    """How it starts."""
    bn_batch: PositiveInt = 8
    """Clips over which BatchNorm takes its statistics."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing of the cross-entropy."""


class OptimizerSection(Section):
    """The optimizer; norms and biases are not decayed."""

    name: Literal["sgd", "adamw"] = "sgd"
    """SGD with momentum, or AdamW."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Nesterov momentum, as PySlowFast's default."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Averages of AdamW."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    """Decay of weights that are neither biases nor norms."""


class PlanOptions(Section):
    """Options that every plan has."""

    control_epoch_factor: Factor | None = None
    """Length of the plan's LR-matched control in `vcycle compare`, in lengths of the baseline; by default 1."""


class ConstantPlan(PlanOptions):
    """One shape throughout."""

    epoch_factor: Factor = 1.0
    """Length, in lengths of the baseline."""


class MultigridPlan(PlanOptions):
    """Long and short cycles (Wu et al. 2020)."""

    epoch_factor: Factor = 1.5
    """Samples, in samples of the baseline."""
    steps: PositiveInt | None = None
    """The budget in steps instead."""
    long_shapes: Fractions | None = None
    """Base shapes of a long cycle as fractions `[frames, side]`, coarse to fine; by default the paper's four."""
    short_sizes: list[float] | None = None
    """Sides of the short cycle as fractions; by default 1/2 and 1/√2."""
    cycles: PositiveInt = 3
    """Long cycles, where the LR has no drops."""
    fine_tune: bool = True
    """End with a phase at the full shape."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR follows the long cycle's batch."""


class CascadePlan(PlanOptions):
    """Each shape once, coarse to fine."""

    epoch_factor: Factor = 1.0
    """Samples, in samples of the baseline."""
    shapes: Fractions | None = None
    """Shapes as fractions `[frames, side]`, coarse to fine; by default space first."""
    weights: list[PositiveFloat] | None = None
    """Relative numbers of steps per shape; by default equal."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR follows the batch."""
    finish: Literal["law", "cosine"] = "law"
    """How the LR decays at the full shape: by the baseline's law squeezed into its steps, or as half a cosine."""


class PlansSection(Section):
    """Options of the plans, used by whichever is chosen."""

    model_config = ConfigDict(populate_by_name=True)

    constant: ConstantPlan = ConstantPlan()
    """The baseline itself."""
    long_short: Annotated[MultigridPlan, Field(alias="long+short")] = MultigridPlan()
    """Both cycles: the paper's method."""
    long: MultigridPlan = MultigridPlan()
    """The long cycle alone."""
    short: MultigridPlan = MultigridPlan()
    """The short cycle alone."""
    cascade: CascadePlan = CascadePlan()
    """Coarse to fine, once."""


class RunSection(Section):
    """How a run is carried out; nothing here changes its result, but `seed` and `precision`."""

    seed: Annotated[int, Field(ge=0)] = 0
    """Keys every random choice."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward and backward pass."""
    validate_every: PositiveFloat = 1.0
    """Epochs of samples between validations."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    bad_limit: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Stop when more than this share of the samples could not be read."""
    tensorboard: bool = False
    """Write TensorBoard event files beside the JSON lines."""


class Recipe(Section):
    """A whole training, from videos to accuracy."""

    description: str = ""
    """What the recipe is, in a line."""
    data: Annotated[DataSection, _as_mapping("path")] = DataSection()
    """The videos."""
    sampling: SamplingSection
    """How clips are taken."""
    model: Annotated[ModelSection, _as_mapping("name")]
    """The network."""
    training: TrainingSection
    """The baseline."""
    optimizer: Annotated[OptimizerSection, _as_mapping("name")] = OptimizerSection()
    """The optimizer."""
    plan: str = "long+short"
    """Which plan: `constant`, `long+short`, `long`, `short` or `cascade`, or `control:PLAN`; `@2` at the end sets its
    epoch factor."""
    plans: PlansSection = PlansSection()
    """Options of the plans."""
    run: RunSection = RunSection()
    """How the run is carried out."""
