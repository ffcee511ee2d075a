"""The plans of a task."""

from abc import abstractmethod
from typing import ClassVar

from vcycle.plan import Baseline, Plan
from vcycle.registry import Registry
from vcycle.tasks.base.part import F, Part, R
from vcycle.tasks.base.splits import Splits
from vcycle.tasks.plans import PlanSpec, build_plan

__all__ = ["TaskPlans"]


class TaskPlans(Part[R, F]):
    """The plans of a task, and the training of constant shape that they start from. Imports no torch."""

    plans: ClassVar[Registry[PlanSpec]]
    """Its plans by name; `constant` is one of them."""
    compared: ClassVar[tuple[str, ...]] = ("constant",)
    """The plans that `vcycle compare` trains by default."""
    scale: ClassVar[int] = 1
    """Ratio of the sides of the largest images to the sides of a plan's shapes."""

    @abstractmethod
    def baseline(self, recipe: R, samples: int | None) -> Baseline:
        """The recipe's baseline of constant shape, for a training set with this number of samples.

        Raises:
            RecipeError: if the length of the training set is needed and unknown, or the training is too short.
        """

    @abstractmethod
    def check_plan(self, recipe: R, plan: Plan) -> None:
        """Check that the recipe's model and sampling support every shape of a plan.

        Raises:
            PlanError: if they do not support a shape; names its first stage and step.
            RecipeError: for an unknown model or option.
        """

    def plan(self, recipe: R, samples: int | None = None, name: str | None = None) -> Plan:
        """Build the plan of that name, by default the recipe's own; see `vcycle.tasks.plans`.

        Raises:
            RecipeError: for an unknown name.
            PlanError: if the plan cannot be built.
        """
        return build_plan(self.plans, recipe, self.baseline(recipe, samples), recipe.plan if name is None else name)

    def notices(self, recipe: R, splits: Splits[F], plan: Plan | None) -> list[str]:
        """Notes for the user before the training starts: on the data, then those of `plan_notices`."""
        return [] if plan is None else self.plan_notices(recipe, plan, len(splits.train))

    def plan_notices(self, recipe: R, plan: Plan, samples: int | None) -> list[str]:
        """Notes on a plan that need no data.

        Args:
            recipe: The recipe.
            plan: Its plan.
            samples: Length of the training set; None if only the recipe states it.
        """
        return []
