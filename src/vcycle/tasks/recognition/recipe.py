"""The recipe schema of recognition. The string under a field is its documentation.

Sections: `data` and `sampling` (the clips), `model`, `training` (the baseline: the hyperparameters of a user's usual
training), `optimizer`, and `plan` (the schedule of shapes). Unknown keys are errors.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from vcycle.config.recipe import RecipeBase
from vcycle.data.config import LoadingSection
from vcycle.section import Clips, Frames, PositiveFloat, Section, Side, as_mapping
from vcycle.tasks.recognition.plan_options import PlansSection
from vcycle.train.config import Average, GradNorm, OptimizerSection

__all__ = [
    "AugmentSection",
    "DataSection",
    "DecaySection",
    "DigitsSection",
    "EvaluationSection",
    "InitSection",
    "RandAugmentSection",
    "RecognitionRecipe",
    "SamplingSection",
    "TrainingSection",
    "WarmupSection",
]

Views = Annotated[int, Field(ge=1, le=1000)]
BetaShape = Annotated[float, Field(ge=1e-3, le=1e3)]
"""α of a Beta distribution. Outside this range, 32-bit draws are always 0 or 1, or always 1/2."""


class DigitsSection(Section):
    """The embedded demo dataset: scanned digits that move over textures, written as H.264 files.

    A pair is a range from which each clip draws uniformly. Two datasets with equal settings are equal.
    """

    digits: tuple[int, ...] = (2, 7)
    """The digits. A class is a pair of digit and motion."""
    motions: tuple[str, ...] = ("left", "right", "up", "down", "clockwise", "counterclockwise")
    """The motions."""
    clips: dict[str, Clips] = Field(default={"train": 100, "val": 25, "test": 50})
    """Clips per class in each split."""
    frames: Frames = 24
    """Frames per file."""
    size: Side = 40
    """Side of the frame in pixels."""
    digit_size: PositiveFloat = 18.0
    """Side of the digit in pixels."""
    speed: tuple[PositiveFloat, PositiveFloat] = (0.02, 0.04)
    """Range of the digit's speed, in frame sides per frame."""
    radius: tuple[PositiveFloat, PositiveFloat] = (0.1, 0.16)
    """Range of the radius of circular motions, in frame sides."""
    jitter: NonNegativeFloat = 0.01
    """Jitter of the digit's position per frame, in frame sides."""
    contrast: tuple[PositiveFloat, PositiveFloat] = (0.25, 0.5)
    """Range of the luma difference between digit and background, in 0..1."""
    texture: NonNegativeFloat = 0.1
    """Strength of the background texture, in 0..1."""
    noise: NonNegativeFloat = 0.02
    """Strength of the noise per frame, in 0..1."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Random seed."""

    @property
    def classes(self) -> tuple[tuple[str, int, str], ...]:
        """The classes as (name, digit, motion); the name is that of the folder, such as `7-clockwise`."""
        return tuple((f"{digit}-{motion}", digit, motion) for digit in self.digits for motion in self.motions)

    @property
    def train_clips(self) -> int:
        """Length of the training split."""
        return self.clips.get("train", 0) * len(self.classes)


class DataSection(LoadingSection):
    """The videos."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A folder of videos (`train/CLASS/*.mp4`, or `CLASS/*.mp4` with a keyed split), a folder with list files or with
    a dataset's official files, a list file, or the output of `vcycle prepare`. A folder or a list may be at a URL."""
    layout: str = "auto"
    """The dataset layout: `folder`, `list`, `kinetics`, `ssv2`, `charades`, `ucf101`, `hmdb51` or one that you have
    registered; `auto` detects it from the files in the folder."""
    fold: PositiveInt | None = None
    """The official fold, of UCF101 or HMDB51 1 to 3; by default 1."""
    val: str | None = None
    """A list file of validation videos, if `path` is a list file without a `split` column."""
    test: str | None = None
    """A list file of test videos, if `path` is a list file."""
    root: str | None = None
    """The folder or URL of the videos in list files; by default the folder of the list file."""
    digits: DigitsSection | None = None
    """Generate the embedded demo dataset instead."""
    clips: PositiveInt | None = None
    """Length of the training set, to plan without the videos; counted otherwise."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of each class for validation, if the data has no validation split; in UCF101 and HMDB51, a share of the
    training list."""
    cache: Annotated[int, Field(ge=1, le=16384)] | None = None
    """Decode every video once, at this short side in pixels, into a memory-mapped file."""


class SamplingSection(Section):
    """How a clip is sampled from a video."""

    stride: PositiveFloat | None = None
    """Distance between the frames of a clip at the baseline's shape, in frames at `fps`."""
    fps: PositiveFloat | None = None
    """Frame rate of `stride`; by default the video's frame rate."""
    span: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of `stride`: the range of a clip's duration, as fractions of the video's."""
    segments: bool = False
    """Divide the clip into equal segments, one per frame, and draw each frame at random from its segment, instead of
    taking the middle."""
    short: Literal["hold", "loop"] = "hold"
    """What fills a clip that is longer than its video: the last frame, or the video again from its start."""
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
    """Mean per channel to subtract, for values in 0..1."""
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.225, 0.225, 0.225)
    """Standard deviation per channel to divide by."""


class InitSection(Section):
    """The initial weights; without a file, a random initialisation from the seed."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A weights file, a run folder, or the output of `vcycle export`."""
    head: Literal["keep", "new"] = "keep"
    """Keep the file's classifier, or initialise a new one."""
    needed: bool = False
    """Refuse to train without a file."""


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


class TrainingSection(Section):
    """The baseline of constant shape that a plan is derived from."""

    batch: Clips
    """Clips per step (the global batch)."""
    frames: Frames
    """Frames per clip."""
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
    multi_label: bool = False
    """Whether a video may have any number of labels (Charades): binary cross-entropy per class replaces the softmax
    cross-entropy."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing of the cross-entropy, for single-label videos."""
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


class AugmentSection(Section):
    """Augmentation beyond crops and flips; off by default."""

    randaugment: RandAugmentSection | None = None
    """Random image operations per clip."""
    mixup: BetaShape | None = None
    """Mixup: blend each clip and its label with its neighbour in the batch, with a weight from Beta(α, α). Needs
    torchvision."""
    cutmix: BetaShape | None = None
    """CutMix: paste a rectangle of the neighbour, through all frames, into each clip; α as for `mixup`. If both are
    set, each step uses one of them with equal probability."""


class EvaluationSection(Section):
    """The evaluation of a trained model; validations during training use one center clip per video.

    Published protocols: `clips: 10, crops: 3` (Kinetics); the same with `combine: max` (Charades).
    """

    clips: Views = 1
    """Clips per video, spread from its start to its end; a single clip is taken from the middle."""
    crops: Views = 1
    """Crops per clip, spread along the longer side of its frames; a single crop is the center."""
    size: Side | None = None
    """Side of a crop in pixels, also in validations during training; by default that of the baseline."""
    short_side: Side | None = None
    """Short side in pixels of the frames that crops are taken from; by default the lower end of
    `sampling.short_side`."""
    fully_convolutional: bool = False
    """If `size` is above the baseline's: classify every position of a window of the baseline's size in the crop and
    average the scores, instead of pooling over the whole crop."""
    scores: Literal["auto", "softmax", "sigmoid"] = "auto"
    """The activation on the logits; `auto` is `sigmoid` with `training.multi_label`, else `softmax`."""
    combine: Literal["mean", "max"] = "mean"
    """How the scores of a video's views are combined: the mean, or the maximum per class."""


class RecognitionRecipe(RecipeBase):
    """A complete recipe of recognition, from videos to accuracy."""

    task: Literal["recognition"] = "recognition"
    """The task."""
    data: Annotated[DataSection, as_mapping("path")] = DataSection()
    """The videos."""
    sampling: SamplingSection
    """How clips are sampled."""
    init: Annotated[InitSection, as_mapping("path")] = InitSection()
    """The initial weights."""
    training: TrainingSection
    """The baseline."""
    augment: AugmentSection = AugmentSection()
    """Augmentation beyond crops and flips."""
    optimizer: Annotated[OptimizerSection, as_mapping("name")] = OptimizerSection()
    """The optimizer."""
    plan: str = "long+short"
    """The plan: `constant`, `long+short`, `long`, `short`, `cascade`, a registered plan, or `control:PLAN`; a suffix
    such as `@2` sets its epoch factor."""
    plans: PlansSection = PlansSection()
    """Options of the plans."""
    evaluation: EvaluationSection = EvaluationSection()
    """The evaluation of a trained model."""

    paths: ClassVar[tuple[str, ...]] = (*RecipeBase.paths, "data.root")
