"""What a recipe file may say. The string under a field is its documentation.

Sections mirror the rooms: `data` and `sampling` (what a clip is), `model`, `training` (the recipe a user has
today: the baseline), `optimizer`, and `plan` (how the training moves through its grids). Keys that are not
listed here are refused.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from vcycle.data.layouts import LayoutName
from vcycle.recipes.plan_sections import PlansSection
from vcycle.recipes.section import Clips, Frames, PositiveFloat, Seconds, Section, Side, as_mapping

__all__ = [
    "AugmentSection",
    "Average",
    "DataSection",
    "DecaySection",
    "DigitsSection",
    "EvaluationSection",
    "InitSection",
    "ModelSection",
    "OptimizerSection",
    "RandAugmentSection",
    "Recipe",
    "RunSection",
    "SamplingSection",
    "TrainingSection",
    "WarmupSection",
]

Views = Annotated[int, Field(ge=1, le=1000)]
Average = Annotated[float, Field(ge=0, lt=1)]
"""What is left of a running average after a step."""
BetaShape = Annotated[float, Field(ge=1e-3, le=1e3)]
"""α of a Beta distribution; outside of this range its draws are 0 and 1, or 1/2, in 32-bit floats."""


class DigitsSection(Section):
    """The embedded demonstration set: digit scans moving over textures, written as H.264 files.

    The fields are those of `vcycle.data.digits.DigitSettings`.
    """

    digits: tuple[int, ...] = (2, 7)
    """Which digits; the class is the pair of digit and motion."""
    motions: tuple[str, ...] = ("left", "right", "up", "down", "clockwise", "counterclockwise")
    """Which motions."""
    clips: dict[str, Clips] = Field(default={"train": 100, "val": 25, "test": 50})
    """Clips of each class in each split."""
    frames: Frames = 24
    """Frames of each file."""
    size: Side = 40
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
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
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
    """A list file of validation videos, where `path` is a list file without a column `split`."""
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
    cache: Annotated[int, Field(ge=1, le=16384)] | None = None
    """Decode every video once, to this short side in pixels, into a file that is mapped into memory."""
    workers: Annotated[int, Field(ge=0, le=1024)] = 2
    """Processes that load clips; 0 loads in the training process."""
    timeout: Seconds = 60.0
    """Seconds that a worker may take over a clip. Then both are replaced: the worker, and the clip by another."""
    prefetch: Clips | None = None
    """Clips to load ahead where batches are smallest, by default 4 for each worker; as many batches elsewhere, never
    less than two."""


class SamplingSection(Section):
    """How a clip is taken from a video."""

    stride: PositiveFloat | None = None
    """Distance of a clip's frames at the baseline's shape, in frames at `fps`."""
    fps: PositiveFloat | None = None
    """Frame rate that `stride` is counted in; by default the video's own."""
    span: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of a stride: the range of the clip's duration, as fractions of the video's."""
    segments: bool = False
    """Draw each frame at random from its own share of the clip, rather than take the middle of every share."""
    short: Literal["hold", "loop"] = "hold"
    """What a clip shows once a shorter video is over: its last frame, or the video again from its start."""
    short_side: tuple[Side, Side] | None = None
    """Range of the short side in pixels that crops are taken from, at the baseline's size (Kinetics: 256, 340).
    A coarse crop of the same picture may show less of it, as in the paper."""
    field: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of `short_side`: the fraction of the picture's short side that a crop shows, at any size."""
    flip: bool = True
    """Mirror half of the clips; off where left and right differ in meaning."""
    antialias: bool = False
    """Low-pass before shrinking; the papers' bilinear interpolation does not."""
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    """Mean per channel that is subtracted, of values in 0..1."""
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.225, 0.225, 0.225)
    """Standard deviation per channel that is divided by."""


class ModelSection(Section):
    """The network."""

    name: str
    """A model of vcycle's or of torchvision's."""
    options: dict[str, Any] = Field(default={})
    """Options of that model."""


class InitSection(Section):
    """The weights to begin with; drawn by the seed where nothing is given."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A file of weights, the folder of a run, or what `vcycle export` wrote."""
    head: Literal["keep", "new"] = "keep"
    """Keep the file's classifier, or draw a new one."""
    needed: bool = False
    """Refuse to train without a file."""


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
    floor: NonNegativeFloat = 0.0
    """Where a cosine ends."""


class WarmupSection(Section):
    """How the LR starts: a straight line up to the LR that is due."""

    length: NonNegativeFloat
    """In the unit of the training's length; 0 for none. A plan keeps it in samples."""
    start_lr: NonNegativeFloat = 0.0
    """Where it starts; scaled to the batch as `training.lr` is."""


class TrainingSection(Section):
    """The baseline: the training of constant shape that a plan is derived from."""

    batch: Clips
    """Clips in a step."""
    frames: Frames
    """Frames of a clip."""
    size: Side
    """Side of the crop in pixels."""
    epochs: PositiveFloat | None = None
    """Length in epochs; either this or `steps`."""
    steps: PositiveInt | None = None
    """Length in steps; either this or `epochs`."""
    min_steps: PositiveInt | None = None
    """The least length in steps, where `epochs` of few videos come to less; milestones and warm-up move along."""
    lr: PositiveFloat
    """Peak learning rate."""
    lr_batch: PositiveInt | None = None
    """The batch that `lr` and `warmup.start_lr` are stated for; another batch scales both linearly."""
    decay: Annotated[DecaySection, as_mapping("law")] = DecaySection(law="constant")
    """How the LR falls."""
    warmup: WarmupSection | None = None
    """How it starts."""
    bn_batch: PositiveInt = 8
    """Clips over which BatchNorm takes its statistics."""
    multi_label: bool = False
    """Whether a video may have any number of labels (Charades): each class is then told by itself, by binary
    cross-entropy in place of the softmax's."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing of the cross-entropy, where a video has one label."""
    freeze: Literal["none", "batchnorm", "backbone"] = "none"
    """What is not trained: each BatchNorm (its statistics, scale and shift), or everything but the classifier."""
    precise_bn: PositiveInt | None = None
    """Clips over which BatchNorm's running statistics are recomputed before each validation and at the end; by
    default they are those that training keeps."""
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Average the weights over the steps, and evaluate the average: what is left of it after a step of `batch` clips. A
    larger batch looks back over as many samples, not steps."""


class RandAugmentSection(Section):
    """RandAugment: a few operations on the picture for each clip, the same for all of its frames. Needs torchvision."""

    ops: Annotated[int, Field(gt=0, le=100)] = 2
    """Operations in a row."""
    magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    """Strength of each, of 30."""


class AugmentSection(Section):
    """Augmentation beyond crops and mirroring; all of it is off unless given."""

    randaugment: RandAugmentSection | None = None
    """Operations drawn for each clip."""
    mixup: BetaShape | None = None
    """Blend each clip and its label with its neighbour's in the batch; α of the share's distribution Beta(α, α). Needs
    torchvision."""
    cutmix: BetaShape | None = None
    """Paste a rectangle of its neighbour, through all frames, into each clip; α as for `mixup`. With both given, each
    step takes one, by an even chance."""


class OptimizerSection(Section):
    """The optimizer; norms and biases are not decayed."""

    name: Literal["sgd", "adamw"] = "sgd"
    """SGD with momentum, or AdamW."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    nesterov: bool = False
    """Nesterov momentum, as PySlowFast's default."""
    betas: tuple[Average, Average] = (0.9, 0.999)
    """Averages of AdamW."""
    weight_decay: NonNegativeFloat = 1e-4
    """Decay of weights that are neither biases nor norms."""


class EvaluationSection(Section):
    """How a finished training is evaluated; during training it is one center clip of each video.

    Published protocols: `clips: 10, crops: 3` (Kinetics); the same with `combine: max` (Charades).
    """

    clips: Views = 1
    """Clips of a video, spread from its beginning to its end; one is the middle."""
    crops: Views = 1
    """Crops of a clip, spread along the longer side of its picture; one is the center."""
    size: Side | None = None
    """Side of a crop in pixels, in the validations of a training as well; by default that of the baseline."""
    short_side: Side | None = None
    """Short side in pixels of the picture that crops are taken from; by default the lower end of
    `sampling.short_side`."""
    fully_convolutional: bool = False
    """Where `size` is above the baseline's: classify each place of a crop at which one of the baseline's size fits, and
    average, rather than pool over the whole crop."""
    scores: Literal["auto", "softmax", "sigmoid"] = "auto"
    """What makes scores of logits; `auto` is `sigmoid` with `training.multi_label`, else `softmax`."""
    combine: Literal["mean", "max"] = "mean"
    """What a video's views give together: the mean of their scores, or the highest for each class."""


class RunSection(Section):
    """How a run is carried out; nothing here changes its result, but `seed`, `precision` and `compress`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Keys every random choice."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the forward and backward pass."""
    compile: bool = False
    """Compile the network, once for each batch shape, before the first step: minutes, for faster steps. Equal to
    rounding."""
    graphs: bool = False
    """Record forward and backward once for each batch shape, and play them back (CUDA graphs): for small steps on a
    GPU, which its launches bound. Not with several GPUs, mixup or CutMix."""
    compress: Literal["fp16", "bf16"] | None = None
    """Round gradients to this on their way between processes: half as much to send, where the network is slow."""
    shard: bool = False
    """Have each process hold a part of the weights, gradients and optimizer, rather than all of them (FSDP): for models
    that need it. Equal to rounding; not with `compile`, nor with `graphs`. Without an effect on one process."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """Threads that compute in each process. `auto`: what `OMP_NUM_THREADS` says or, on resume, what the run had; else
    the idle cores, less those of `data.workers` and shared by the processes of a machine, or 1 where that is faster."""
    validate_every: Annotated[float, Field(ge=1e-6)] = 1.0
    """Epochs of samples between validations."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    bad_limit: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Stop when more than this share of the samples could not be read. An epoch's share is that of the bad files. A
    single bad file does not stop a run, unless this is 0."""
    tensorboard: bool = False
    """Write TensorBoard event files beside the JSON lines."""
    bad_steps: Annotated[int, Field(ge=0)] = 10
    """Stop when more than so many updates in a row had to be skipped because the loss or a gradient was not finite."""
    watchdog: Annotated[float, Field(ge=0.001, le=1e5)] | None = 10.0
    """Minutes without a step after which it is said where every thread is and what it waits for; `null` for never."""
    fit: Literal["auto", "always", "never"] = "auto"
    """Try each batch shape before the first step, and compute those that do not fit into memory in parts, with the same
    result. `auto`: on a GPU. If memory runs out later, that is done in any case."""


class Recipe(Section):
    """A whole training, from videos to accuracy."""

    task: Literal["recognition"] = "recognition"
    """What is learned."""
    description: str = ""
    """What the recipe is, in a line."""
    data: Annotated[DataSection, as_mapping("path")] = DataSection()
    """The videos."""
    sampling: SamplingSection
    """How clips are taken."""
    model: Annotated[ModelSection, as_mapping("name")]
    """The network."""
    init: Annotated[InitSection, as_mapping("path")] = InitSection()
    """The weights to begin with."""
    training: TrainingSection
    """The baseline."""
    augment: AugmentSection = AugmentSection()
    """Augmentation beyond crops and mirroring."""
    optimizer: Annotated[OptimizerSection, as_mapping("name")] = OptimizerSection()
    """The optimizer."""
    plan: str = "long+short"
    """Which plan: `constant`, `long+short`, `long`, `short` or `cascade`, or `control:PLAN`; `@2` at the end sets its
    epoch factor."""
    plans: PlansSection = PlansSection()
    """Options of the plans."""
    evaluation: EvaluationSection = EvaluationSection()
    """How a finished training is evaluated."""
    run: RunSection = RunSection()
    """How the run is carried out."""
