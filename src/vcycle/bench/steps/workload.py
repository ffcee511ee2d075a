"""What is measured of a recipe, whichever its task: the model, and what trains it."""

from __future__ import annotations

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
    """What is measured."""

    config: TrainConfig
    """How it would be trained."""
    objective: Objective
    build: Callable[[], nn.Module]
    """Makes the model, frozen as in training; its weights are as drawn, as times do not depend on them."""
    role_of: Callable[[str], str | None] = lambda _: None
    """The plan's role of a parameter, by its name."""
    flop_counts: Mapping[Any, Callable[..., int]] = field(default_factory=dict)
    """FLOPs of operators that PyTorch's counter does not know."""


def workload_of(recipe: RecipeBase, classes: int) -> Workload:
    """What is measured of a recipe.

    Args:
        recipe: Of any task.
        classes: Outputs of the model, where the task has classes.
    """
    task = tasks[recipe.task]
    return Workload(
        config=config_of(recipe),
        objective=task.objective(recipe, classes),
        build=lambda: task.prepare_model(task.build_model(recipe, classes, download=False), recipe),
        role_of=task.role_of(recipe),
        flop_counts=task.flop_counts(),
    )
