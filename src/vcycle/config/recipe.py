"""Recipe sections that every task shares. The string under a field is its documentation."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, PositiveInt

from vcycle.section import Section, as_mapping
from vcycle.train.config import RunSection

__all__ = ["RUN_RECIPE", "ModelSection", "NeedsSection", "PlansBase", "RecipeBase"]

RUN_RECIPE = "recipe.yaml"
"""File name of the resolved recipe in a run folder."""


class PlansBase(Section):
    """Options of the task's plans. A registered plan adds a section with its name, which that plan validates."""

    model_config = ConfigDict(extra="allow")


class NeedsSection(Section):
    """Constraints on a clip's shape, beyond those that the model declares. Plans round to the multiples."""

    min_frames: PositiveInt = 1
    """Minimum number of frames."""
    frames_multiple: PositiveInt = 1
    """The number of frames is a multiple of this; plans round to the nearest."""
    min_size: PositiveInt = 1
    """Minimum short side in pixels."""
    size_multiple: PositiveInt = 1
    """Height and width are multiples of this; plans round to the nearest."""


class ModelSection(Section):
    """The model."""

    name: Annotated[str, Field(min_length=1)]
    """A model of the task, by its name, or `module:Class`, your own."""
    options: dict[str, Any] = Field(default={})
    """Options of that model."""
    needs: NeedsSection | None = None
    """Constraints on a clip's shape, beyond those that the model declares; plans follow them."""


class RecipeBase(Section):
    """A complete recipe. A task's recipe defines the schemas of the sections, and may add sections."""

    model_config = ConfigDict(populate_by_name=True)

    task: str
    """The task."""
    imports: Annotated[
        tuple[str, ...],
        Field(alias="import"),
        BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    ] = ()
    """Modules to import first, one or a list: they may register models, dataset layouts, plans and tasks."""
    description: str = ""
    """A description in one line."""
    data: Any
    """The data."""
    model: Annotated[ModelSection, as_mapping("name")]
    """The model."""
    init: Any
    """The initial weights."""
    training: Any
    """The baseline that plans are derived from."""
    optimizer: Any
    """The optimizer."""
    plan: str
    """The name of the plan."""
    plans: Any
    """Options of the plans."""
    evaluation: Any
    """The evaluation of a trained model."""
    run: RunSection = RunSection()
    """The execution of the run: seed, device, validation, checkpoints."""

    paths: ClassVar[tuple[str, ...]] = ("data.path", "data.val", "data.test", "init.path")
    """Keys whose values are paths; relative paths start from the current folder."""
