"""The recipe schema of recognition. The string under a field is its documentation.

Sections: `data` and `sampling` (the clips), `model`, `training` (the baseline: the hyperparameters of a user's usual
training), `optimizer`, and `plan` (the schedule of shapes). Unknown keys are errors.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from vcycle.config.recipe import RecipeBase
from vcycle.data.config import LoadingSection
from vcycle.plan import Shape
from vcycle.section import Clips, Frames, PositiveFloat, Section, Side, as_mapping
from vcycle.tasks.classification.recipe import (
    ClassificationRecipe,
    EvaluationBase,
    SamplingBase,
    TrainingBase,
    Views,
)

__all__ = [
    "DataSection",
    "DigitsSection",
    "EvaluationSection",
    "InitSection",
    "RecognitionRecipe",
    "SamplingSection",
    "TrainingSection",
]


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
    frame_rate: PositiveFloat | None = None
    """Frames per second of videos that are folders of frames (`CLASS/VIDEO/000001.jpg`), in any layout; they are then
    accepted wherever a file is. By default only where the layout has them: 12 in Something-Something, 24 in
    Charades."""
    digits: DigitsSection | None = None
    """Generate the embedded demo dataset instead."""
    clips: PositiveInt | None = None
    """Length of the training set, to plan without the videos; counted otherwise."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of each class for validation, if the data has no validation split; in UCF101 and HMDB51, a share of the
    training list."""
    cache: Annotated[int, Field(ge=1, le=16384)] | None = None
    """Decode every video once, at this short side in pixels, into a memory-mapped file."""


class SamplingSection(SamplingBase):
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


class InitSection(Section):
    """The initial weights; without a file, a random initialisation from the seed."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A weights file, a run folder, the output of `vcycle export`, or a folder that transformers saved."""
    head: Literal["keep", "new"] = "keep"
    """Keep the file's classifier, or initialise a new one."""
    needed: bool = False
    """Refuse to train without a file."""


class TrainingSection(TrainingBase):
    """The baseline of constant shape that a plan is derived from."""

    batch: Clips
    """Clips per step (the global batch)."""
    frames: Frames
    """Frames per clip."""
    bn_batch: PositiveInt = 8
    """Clips over which BatchNorm computes its statistics."""
    multi_label: bool = False
    """Whether a video may have any number of labels (Charades): binary cross-entropy per class replaces the softmax
    cross-entropy."""


class EvaluationSection(EvaluationBase):
    """The evaluation of a trained model; validations during training use one center clip per video.

    Published protocols: `clips: 10, crops: 3` (Kinetics); the same with `combine: max` (Charades).
    """

    clips: Views = 1
    """Clips per video, spread from its start to its end; a single clip is taken from the middle."""
    fully_convolutional: bool = False
    """If `size` is above the baseline's: classify every position of a window of the baseline's size in the crop and
    average the scores, instead of pooling over the whole crop."""


class RecognitionRecipe(ClassificationRecipe):
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
    plan: str = "long+short"
    """The plan: `constant`, `long+short`, `long`, `short`, `cascade`, a registered plan, or `control:PLAN`; a suffix
    such as `@2` sets its epoch factor."""
    evaluation: EvaluationSection = EvaluationSection()
    """The evaluation of a trained model."""

    paths: ClassVar[tuple[str, ...]] = (*RecipeBase.paths, "data.root")

    @property
    def shape(self) -> Shape:
        """The shape of the baseline's clips."""
        return Shape(self.training.frames, self.training.size, self.training.size)

    @property
    def evaluated_clips(self) -> int:
        """Clips per video in the final evaluation."""
        return self.evaluation.clips

    @property
    def multi_label(self) -> bool:
        """Whether a video may have any number of labels."""
        return self.training.multi_label

    @property
    def fully_convolutional(self) -> bool:
        """Whether the evaluation classifies every position of a larger crop."""
        return self.evaluation.fully_convolutional
