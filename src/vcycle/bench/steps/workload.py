"""What is measured of a recipe, whichever its task: the model, and what trains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vcycle.config.recipe import RecipeBase
from vcycle.runs.train import settings_of
from vcycle.tasks.base import tasks
from vcycle.train.ema import EmaSpec
from vcycle.train.loop import Settings
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.update import Task

__all__ = ["Workload", "workload_of"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is measured."""

    settings: Settings
    """How it would be trained."""
    task: Task
    build: Callable[[], nn.Module]
    """Makes the model, frozen as in training; its weights are as drawn, as times do not depend on them."""
    optimizer: OptimizerSpec
    ema: EmaSpec | None
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
    task, decay = tasks[recipe.task], recipe.training.ema
    return Workload(
        settings=settings_of(recipe),
        task=task.objective(recipe, classes),
        build=lambda: task.prepare_model(task.build_model(recipe, classes, download=False), recipe),
        optimizer=OptimizerSpec(**recipe.optimizer.model_dump()),
        ema=None if decay is None else EmaSpec(decay=decay, clips=recipe.training.batch),
        role_of=task.role_of(recipe),
        flop_counts=task.flop_counts(),
    )
