"""The recipe schema of images. The string under a field is its documentation.

An image is a clip of one frame: the sections are recognition's without what only videos have.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from vcycle.data.config import LoadingSection
from vcycle.section import Clips, PositiveFloat, Section, as_mapping
from vcycle.tasks.classification.recipe import ClassificationRecipe, EvaluationBase, SamplingBase, TrainingBase

__all__ = ["DataSection", "DigitsSection", "ImagesRecipe"]

Share = Annotated[float, Field(ge=0, le=1)]


class DigitsSection(Section):
    """The embedded demo dataset: scanned digits over textured backgrounds, written as PNG files.

    A pair is a range from which each image draws uniformly.
    """

    images: dict[Literal["train", "val", "test"], Clips] = Field(default={"train": 200, "val": 50, "test": 100})
    """Images per digit in each split."""
    size: Annotated[int, Field(ge=16, le=1024)] = 64
    """Side of an image in pixels."""
    digit_size: tuple[PositiveFloat, PositiveFloat] = (0.4, 0.6)
    """Range of the digit's side, in sides of the image."""
    contrast: tuple[Share, Share] = (0.3, 0.6)
    """Range of the difference between digit and background, in 0..1; lighter or darker at random."""
    texture: Share = 0.15
    """Strength of the background texture per channel, in 0..1."""
    noise: Share = 0.05
    """Strength of the noise per pixel, in 0..1."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Random seed."""


class DataSection(LoadingSection):
    """The images."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A folder of images: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, or `CLASS/*.jpg` with a keyed split. JPEG, PNG,
    WebP and BMP."""
    digits: DigitsSection | None = None
    """Generate the embedded demo dataset instead."""
    clips: PositiveInt | None = None
    """Length of the training set, to plan without the images; counted otherwise."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of each class for validation, if the data has no validation split."""
    cache: Annotated[int, Field(ge=1, le=16384)] | None = None
    """Decode every image once, at this short side in pixels, into a memory-mapped file."""


class SamplingSection(SamplingBase):
    """How an image is cropped."""

    field: tuple[PositiveFloat, PositiveFloat] | None = None
    """Instead of `short_side`: the range of a crop's size, as a fraction of the image's short side, at any
    resolution."""
    antialias: bool = True
    """Low-pass filter before downscaling."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Mean per channel to subtract, for values in 0..1; by default that of the initial weights' training, if known, or
    ImageNet's."""
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (0.229, 0.224, 0.225)
    """Standard deviation per channel to divide by; by default as for `mean`."""


class InitSection(Section):
    """The initial weights; without a file, those of the model's options, or random ones from the seed."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """A file of weights with the model's own names, a run folder, or the output of `vcycle export`."""
    head: Literal["keep", "new"] = "keep"
    """Keep the file's classifier, or initialise a new one."""


class TrainingSection(TrainingBase):
    """The baseline of constant size that a plan is derived from. Clips are images."""

    bn_batch: PositiveInt = 32
    """Images over which BatchNorm computes its statistics."""


class ImagesRecipe(ClassificationRecipe):
    """A complete recipe of images, from files to accuracy."""

    task: Literal["images"] = "images"
    """The task."""
    data: Annotated[DataSection, as_mapping("path")] = DataSection()
    """The images."""
    sampling: SamplingSection = SamplingSection()
    """How images are cropped."""
    init: Annotated[InitSection, as_mapping("path")] = InitSection()
    """The initial weights."""
    training: TrainingSection
    """The baseline."""
    plan: str = "cascade"
    """The plan: `constant`, `cascade`, `long+short`, `long`, `short`, a registered plan, or `control:PLAN`; a suffix
    such as `@2` sets its epoch factor. In options of plans, the fraction of frames is 1."""
    evaluation: EvaluationBase = EvaluationBase()
    """The evaluation of a trained model."""
