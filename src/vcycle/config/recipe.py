"""What the recipe of every task has. The string under a field is its documentation."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, PositiveInt

from vcycle.section import Section, as_mapping
from vcycle.train.config import RunSection

__all__ = ["ModelSection", "NeedsSection", "PlansBase", "RecipeBase"]


class PlansBase(Section):
    """Options of a task's own plans; a registered plan adds a section under its name, checked by that plan."""

    model_config = ConfigDict(extra="allow")


class NeedsSection(Section):
    """What a model needs of a clip's shape, beyond what it says itself; plans are checked against it."""

    min_frames: PositiveInt = 1
    """Least number of frames."""
    frames_multiple: PositiveInt = 1
    """What the number of frames is a multiple of."""
    min_size: PositiveInt = 1
    """Least short side in pixels."""
    size_multiple: PositiveInt = 1
    """What height and width are multiples of."""


class ModelSection(Section):
    """The network."""

    name: Annotated[str, Field(min_length=1)]
    """A registered model, such as `slowfast_8x8_r50` or torchvision's `r3d_18`; or `module:Class`, a network of your
    own."""
    options: dict[str, Any] = Field(default={})
    """Options of that model."""
    needs: NeedsSection | None = None
    """What it needs of a clip's shape, beyond what it says itself: every shape of a plan is checked against it."""


class RecipeBase(Section):
    """A whole training. A task's recipe gives the sections their schemas, and may add sections."""

    model_config = ConfigDict(populate_by_name=True)

    task: str
    """What is learned."""
    imports: Annotated[
        tuple[str, ...],
        Field(alias="import"),
        BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    ] = ()
    """Modules to import first, one or several: they may register models, dataset layouts, plans and tasks."""
    description: str = ""
    """What the recipe is, in a line."""
    data: Any
    """The data."""
    model: Annotated[ModelSection, as_mapping("name")]
    """The network."""
    init: Any
    """The weights to start from."""
    training: Any
    """The baseline that plans are derived from."""
    optimizer: Any
    """The optimizer."""
    plan: str
    """Which plan."""
    plans: Any
    """Options of the plans."""
    evaluation: Any
    """How a trained model is evaluated."""
    run: RunSection = RunSection()
    """How the run is carried out."""

    paths: ClassVar[tuple[str, ...]] = ("data.path", "data.val", "data.test", "init.path")
    """Keys whose values are paths; relative ones start from the current folder."""
