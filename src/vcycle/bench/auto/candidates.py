"""The plans that may be chosen for a recipe, and what each would take by the measured time of its steps."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcycle.config.recipe import RecipeBase
from vcycle.errors import PlanError, RecipeError
from vcycle.plan import BatchShape, Plan
from vcycle.tasks.base import tasks
from vcycle.tasks.plans import CONSTANT, CONTROL, control_name, options_of, parse_name

__all__ = ["GROWTHS", "Candidate", "Planned", "Seconds", "candidates", "fitted", "further", "is_coarse", "seconds_of"]

GROWTHS = (0.0, 0.333, 0.667, 1.0)
"""Growths of the batch to consider: from one batch for all shapes to one cost for all steps."""

LONGEST = 2.0
"""The longest plan to propose, in the baseline's samples: no benchmark trained longer."""

Seconds = Mapping[BatchShape, float]
"""The measured time of a step at each batch shape."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan of a recipe, whatever its length."""

    plan: str
    """Its name, without a length."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Options that differ from the recipe's, by name."""
    own: bool = False
    """Whether it is the recipe's own plan."""

    @property
    def label(self) -> str:
        """Its name and options, in words."""
        return ", ".join([self.plan, *(f"{name} {json.dumps(value)}" for name, value in self.changes)])

    @property
    def family(self) -> tuple[Any, ...]:
        """What candidates that differ in their weights alone have in common."""
        return (self.plan, *(change for change in self.changes if change[0] != "weights"))

    def name(self, length: float) -> str:
        """The name of the plan with a length, in lengths of the baseline."""
        return f"{self.plan}@{length:g}"

    def recipe(self, given: RecipeBase) -> RecipeBase:
        """The recipe with this plan's options."""
        if not self.changes:
            return given
        section, options = self._options(given)
        options = options.model_copy(update=dict(self.changes))
        return given.model_copy(update={"plans": given.plans.model_copy(update={section: options})})

    def overrides(self, given: RecipeBase, length: float) -> list[str]:
        """The overrides of the recipe that choose this plan with a length."""
        section, _ = self._options(given)
        known = type(given.plans).model_fields.get(section)
        key = section if known is None else known.alias or section
        return [f"plan={self.name(length)}", *(f"plans.{key}.{name}={json.dumps(v)}" for name, v in self.changes)]

    def build(self, given: RecipeBase, samples: int, length: float) -> Plan:
        """The plan with a length, for a training set of this many samples.

        Raises:
            PlanError: if it cannot be built, or the model does not take its shapes.
        """
        recipe, task = self.recipe(given), tasks[given.task]
        plan = task.plan(recipe, samples, self.name(length))
        task.check_plan(recipe, plan)
        return plan

    def _options(self, given: RecipeBase) -> tuple[str, Any]:
        plans = tasks[given.task].plans
        spec = plans[parse_name(plans, self.plan).base]
        return spec.section, options_of(spec, given)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A candidate with a length, and what it takes."""

    candidate: Candidate
    length: float
    """In lengths of the baseline: the `@FACTOR` of its name."""
    plan: Plan
    seconds: float
    """Predicted training time, by the measured time of each step."""
    is_longest: bool = False
    """Whether a larger budget would not make it longer."""

    @property
    def full_share(self) -> float:
        """The share of the steps at the full shape, with all tokens."""
        full = self.plan.baseline_shape
        same = sum(n for shape, n in self.plan.counts.items() if not is_coarse(shape, full))
        return same / len(self.plan)

    @property
    def score(self) -> float:
        """Geometric mean of updates and samples: a plan needs both, and time buys one with the other."""
        return math.sqrt(len(self.plan) * self.plan.samples)


def candidates(given: RecipeBase, samples: int) -> Iterator[tuple[Candidate, Plan]]:
    """The candidates that can be built, each with its plan of one length; the recipe's own comes first.

    They are the constant shape, the task's plans with their own options and, where a plan has these options, with each
    growth of the batch and several weights of its shapes; and the constant shape under the LR curve of a plan.
    """
    task = tasks[given.task]
    own = given.plan.partition("@")[0]
    cycled = [name for name in task.plans if name not in CONSTANT]
    compared = [name for name in (own, *task.compared) if name.removeprefix(CONTROL) not in CONSTANT]
    found = [Candidate(plan=own, own=True), Candidate(plan="constant")]
    found += [variant for name in cycled for variant in _variants(given, samples, name)]
    found += [Candidate(plan=control_name(name.removeprefix(CONTROL))) for name in compared[:1]]
    seen = set()
    for candidate in found:
        try:
            plan = candidate.build(given, samples, 1.0)
        except (PlanError, RecipeError):
            if candidate.own:
                raise
            continue
        if plan.fingerprint not in seen:
            seen.add(plan.fingerprint)
            yield candidate, plan


def further(given: RecipeBase, samples: int, known: Sequence[tuple[Candidate, Plan]], length: float) -> Iterator[Plan]:
    """Plans with the batch shapes that the candidates have at other lengths than one.

    Which shapes of its pattern a stage of one or two steps uses depends on its first step, and so on the plan's length
    and on the number of samples. So each stage has as many steps as its pattern has shapes, or more.
    """
    seen = {shape for _, plan in known for shape in plan.shapes}
    for candidate, _ in known:
        try:
            plan = candidate.build(given, samples, length)
            stages = [replace(stage, steps=max(stage.steps, len(stage.pattern))) for stage in plan.stages]
            plan = replace(plan, stages=tuple(stages))
            tasks[given.task].check_plan(candidate.recipe(given), plan)
        except (PlanError, RecipeError):
            continue
        if not seen.issuperset(plan.shapes):
            seen.update(plan.shapes)
            yield plan


def _variants(given: RecipeBase, samples: int, name: str) -> Iterator[Candidate]:
    yield Candidate(plan=name)
    _, options = Candidate(plan=name)._options(given)
    growths: list[Any] = [None]
    if hasattr(options, "batch_growth"):
        growths += [growth for growth in GROWTHS if growth != options.batch_growth]
    weights: list[Any] = [None]
    if hasattr(options, "weights"):
        try:
            shapes = len(Candidate(plan=name, changes=(("weights", None),)).build(given, samples, 1.0).shapes)
        except (PlanError, RecipeError):
            return
        # Equal, half of the steps at the coarsest shape, half of them at the full one.
        weighed = ([1] * shapes, [shapes - 1] + [1] * (shapes - 1), [1] * (shapes - 1) + [shapes - 1])
        weights += [each for each in weighed if each != options.weights and shapes > 1]
    for growth in growths:
        for weight in weights:
            changes = (("batch_growth", growth), ("weights", weight))
            yield Candidate(plan=name, changes=tuple(change for change in changes if change[1] is not None))


def is_coarse(shape: BatchShape, full: BatchShape) -> bool:
    """Whether a clip has other frames, pixels or tokens than at the full shape, whatever the batch."""
    return (shape.shape, shape.tokens) != (full.shape, full.tokens)


def seconds_of(plan: Plan, seconds: Seconds) -> float:
    """The predicted training time of a plan.

    Raises:
        PlanError: if a step of one of its batch shapes was not timed, as of a plan whose shapes depend on its length.
    """
    try:
        return sum(count * seconds[shape] for shape, count in plan.counts.items())
    except KeyError as error:
        raise PlanError(f"plan {plan.name!r}: no step was timed at the batch shape {error.args[0]}") from None


def fitted(
    candidate: Candidate, given: RecipeBase, samples: int, seconds: Seconds, budget: float, longest: float = LONGEST
) -> Planned | None:
    """The candidate at the length that a time budget allows, or None if it has no plan as short as that.

    A length with a batch shape whose step was not timed is none.

    Args:
        candidate: The candidate.
        given: The recipe.
        samples: Length of the training set.
        seconds: Measured seconds of a step at each of its batch shapes.
        budget: Seconds.
        longest: The most lengths of the baseline.
    """
    try:
        longest = _rounded_down(longest)
        length = budget / seconds_of(candidate.build(given, samples, 1.0), seconds)
        for _ in range(8):  # whole steps, and at least one in each stage, may be longer than the budget
            length = _rounded_down(min(length, longest))
            plan = candidate.build(given, samples, length)
            taken = seconds_of(plan, seconds)
            if taken <= budget * (1 + 1e-9):
                return Planned(
                    candidate=candidate, length=length, plan=plan, seconds=taken, is_longest=length == longest
                )
            length *= min(0.99, budget / taken)
    except (PlanError, RecipeError):
        pass
    return None


def _rounded_down(value: float) -> float:
    """Three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.6g}")
