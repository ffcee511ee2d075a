"""The workload of a recipe of any task: its model, objective and training configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vcycle.config.recipe import RecipeBase
from vcycle.runs.train import config_of
from vcycle.tasks.base import tasks
from vcycle.train.config import TrainConfig
from vcycle.train.objective import Objective

__all__ = ["Workload", "workload_of"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and its training."""

    config: TrainConfig
    """The training configuration."""
    objective: Objective
    build: Callable[[], nn.Module]
    """Builds the model, frozen as in training, with random weights: times do not depend on them."""
    role_of: Callable[[str], str | None] = lambda _: None
    """The plan's role of a parameter, by its name."""
    flop_counts: Mapping[Any, Callable[..., int]] = field(default_factory=dict)
    """FLOPs of operators that PyTorch's counter does not know."""


def workload_of(recipe: RecipeBase, classes: int) -> Workload:
    """The workload of a recipe.

    Args:
        recipe: A recipe of any task.
        classes: Number of model outputs, if the task has classes.
    """
    task = tasks[recipe.task]
    return Workload(
        config=config_of(recipe),
        objective=task.objective(recipe, classes),
        build=lambda: task.prepare_model(task.build_model(recipe, classes, download=False), recipe),
        role_of=task.role_of(recipe),
        flop_counts=task.flop_counts(),
    )
