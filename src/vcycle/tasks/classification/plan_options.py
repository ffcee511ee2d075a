"""Options of recognition's plans in a recipe. The string under a field is its documentation."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PositiveInt

from vcycle.config.recipe import PlansBase
from vcycle.section import PositiveFloat, Section

__all__ = ["CascadePlan", "ConstantPlan", "LongPlan", "MultigridPlan", "PlansSection", "ShortPlan"]

Factor = Annotated[float, Field(gt=0, le=1000)]
Fraction = Annotated[tuple[float, ...], Field(min_length=2, max_length=3)]
Fractions = Annotated[list[Fraction], Field(min_length=1)]


class PlanOptions(Section):
    """Options of every plan."""

    control_epoch_factor: Factor | None = None
    """Length of the plan's LR-matched control in `vcycle compare`, in lengths of the baseline; by default 1."""


class ConstantPlan(PlanOptions):
    """One shape for the whole training."""

    epoch_factor: Factor = 1.0
    """Length, in lengths of the baseline."""
    steps: PositiveInt | None = None
    """Instead of `epoch_factor`: the length in steps."""
    shape: Fraction | None = None
    """A smaller shape for the whole training, as fractions `[frames, side]` or `[frames, side, tokens]`. The batch
    grows so that a step costs the same; the evaluation stays at full resolution and has all tokens."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR scales with the batch of a smaller shape."""


class CycledPlan(PlanOptions):
    """Options of every plan with cycles."""

    epoch_factor: Factor = 1.5
    """Number of samples, as a multiple of the baseline's."""
    steps: PositiveInt | None = None
    """Instead of `epoch_factor`: the budget in steps."""


class ShortPlan(CycledPlan):
    """The short cycle alone."""

    short_sizes: Annotated[list[float], Field(min_length=1)] | None = None
    """Sides of the short cycle as fractions; by default 1/2 and 1/√2."""


class LongPlan(CycledPlan):
    """The long cycle alone."""

    long_shapes: Fractions | None = None
    """Base shapes of a long cycle as fractions `[frames, side]` or `[frames, side, tokens]`, coarse to fine; by default
    the paper's four."""
    cycles: PositiveInt = 3
    """Number of long cycles, if the LR schedule has no drops."""
    fine_tune: bool = True
    """End with a phase at the full shape."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR scales with the long cycle's batch."""


class MultigridPlan(ShortPlan, LongPlan):
    """Long and short cycles (Wu et al. 2020)."""


class CascadePlan(PlanOptions):
    """Each shape once, coarse to fine (progressive resizing)."""

    epoch_factor: Factor = 1.0
    """Number of samples, as a multiple of the baseline's."""
    steps: PositiveInt | None = None
    """Instead of `epoch_factor`: the budget in steps."""
    shapes: Fractions | None = None
    """Shapes as fractions `[frames, side]` or `[frames, side, tokens]`, coarse to fine; by default space first."""
    weights: list[PositiveFloat] | None = None
    """Relative number of steps per shape; by default equal."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the LR scales with the batch."""
    batch_growth: Annotated[float, Field(ge=0, le=1)] = 1.0
    """How the batch grows as clips shrink: 1 keeps the work per step constant, 0 keeps the batch constant; values in
    between give more and cheaper updates."""
    finish: Literal["law", "cosine"] = "law"
    """The LR schedule at the full shape: the baseline's, compressed into these steps, or a half cosine."""


class PlansSection(PlansBase):
    """Options of the plans; a training uses those of its plan."""

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
    """Each shape once, coarse to fine."""
