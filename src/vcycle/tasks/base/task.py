"""A task: all its parts in one object."""

from typing import ClassVar

from vcycle.config.recipe import RecipeBase
from vcycle.tasks.base.commands import TaskCommands
from vcycle.tasks.base.data import TaskData
from vcycle.tasks.base.evaluation import TaskEvaluation
from vcycle.tasks.base.page import TaskPage
from vcycle.tasks.base.part import F, R
from vcycle.tasks.base.plans import TaskPlans
from vcycle.tasks.base.trained import TaskTrained
from vcycle.tasks.base.training import TaskTraining

__all__ = ["Task"]


class Task(
    TaskData[R, F],
    TaskPlans[R, F],
    TaskTraining[R, F],
    TaskEvaluation[R, F],
    TaskTrained[R, F],
    TaskPage[R, F],
    TaskCommands[R, F],
):
    """Base class of tasks. A subclass sets its recipe, plans, measures and data; the defaults suit simple tasks."""

    recipe: ClassVar[type[RecipeBase]]
    """The schema of its recipes."""
    recipes: ClassVar[str | None] = None
    """The package with its shipped recipes, in folders."""
    free_keys: ClassVar[tuple[str, ...]] = ()
    """Recipe keys of this task that a resume may change, beside those of every task; they do not change the result."""
