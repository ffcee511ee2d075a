"""What a recipe of recognition may say of its plans. The string under a field is its documentation."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PositiveInt

from vcycle.recipes.section import PositiveFloat, Section

__all__ = ["CascadePlan", "ConstantPlan", "LongPlan", "MultigridPlan", "PlansSection", "ShortPlan"]

Factor = Annotated[float, Field(gt=0, le=1000)]
Fractions = Annotated[list[tuple[float, float]], Field(min_length=1)]


class PlanOptions(Section):
    """Options that every plan has."""

    control_epoch_factor: Factor | None = None
    """Length of the plan's LR-matched control in `vcycle compare`, in lengths of the baseline; by default 1."""


class ConstantPlan(PlanOptions):
    """One shape throughout."""

    epoch_factor: Factor = 1.0
    """Length, in lengths of the baseline."""
    steps: PositiveInt | None = None
    """The length in steps instead."""
    shape: tuple[float, float] | None = None
    """A smaller shape for the whole training, as fractions `[frames, side]`, its batch grown so that a step costs the
    same; evaluation stays at the full one."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR follows the batch of a smaller shape."""


class CycledPlan(PlanOptions):
    """Options of every plan with cycles."""

    epoch_factor: Factor = 1.5
    """Samples, in samples of the baseline."""
    steps: PositiveInt | None = None
    """The budget in steps instead."""


class ShortPlan(CycledPlan):
    """The short cycle alone."""

    short_sizes: Annotated[list[float], Field(min_length=1)] | None = None
    """Sides of the short cycle as fractions; by default 1/2 and 1/√2."""


class LongPlan(CycledPlan):
    """The long cycle alone."""

    long_shapes: Fractions | None = None
    """Base shapes of a long cycle as fractions `[frames, side]`, coarse to fine; by default the paper's four."""
    cycles: PositiveInt = 3
    """Long cycles, where the LR has no drops."""
    fine_tune: bool = True
    """End with a phase at the full shape."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR follows the long cycle's batch."""


class MultigridPlan(ShortPlan, LongPlan):
    """Long and short cycles (Wu et al. 2020)."""


class CascadePlan(PlanOptions):
    """Each shape once, coarse to fine."""

    epoch_factor: Factor = 1.0
    """Samples, in samples of the baseline."""
    steps: PositiveInt | None = None
    """The budget in steps instead."""
    shapes: Fractions | None = None
    """Shapes as fractions `[frames, side]`, coarse to fine; by default space first."""
    weights: list[PositiveFloat] | None = None
    """Relative numbers of steps per shape; by default equal."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR follows the batch."""
    batch_growth: Annotated[float, Field(ge=0, le=1)] = 1.0
    """How the batch follows the shrinking of a clip: 1 keeps the work of a step, 0 the batch; between, there are more
    and cheaper updates."""
    finish: Literal["law", "cosine"] = "law"
    """How the LR decays at the full shape: by the baseline's law squeezed into its steps, or as half a cosine."""


class PlansSection(Section):
    """Options of the plans, used by whichever is chosen."""

    model_config = ConfigDict(populate_by_name=True)

    constant: ConstantPlan = ConstantPlan()
    """The baseline itself."""
    long_short: Annotated[MultigridPlan, Field(alias="long+short")] = MultigridPlan()
    """Both cycles: the paper's method."""
    long: LongPlan = LongPlan()
    """The long cycle alone."""
    short: ShortPlan = ShortPlan()
    """The short cycle alone."""
    cascade: CascadePlan = CascadePlan()
    """Coarse to fine, once."""
