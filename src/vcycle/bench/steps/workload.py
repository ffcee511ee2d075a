"""What is measured of a recipe, whichever its task: the model, and what trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from vcycle.tasks.recognition.build import settings_of
from vcycle.tasks.recognition.recipe import Recipe
from vcycle.train.ema import EmaSpec
from vcycle.train.loop import Settings
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.update import Task

if TYPE_CHECKING:
    from vcycle.tasks.recipes import AnyRecipe
    from vcycle.tasks.superres.recipe import SuperresRecipe

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


def workload_of(recipe: AnyRecipe, classes: int) -> Workload:
    """What is measured of a recipe.

    Args:
        recipe: Of any task.
        classes: Outputs of a model of recognition.
    """
    return _recognition(recipe, classes) if isinstance(recipe, Recipe) else _superresolution(recipe)


def _recognition(recipe: Recipe, classes: int) -> Workload:
    from vcycle.nn import freeze
    from vcycle.runs.loaded_model import without_downloads
    from vcycle.tasks.recognition.build import build_model, task_of

    training = recipe.training
    return Workload(
        settings=settings_of(recipe),
        task=task_of(recipe, classes),
        build=lambda: freeze(build_model(without_downloads(recipe), classes, recipe.run.seed), training.freeze),
        optimizer=OptimizerSpec(**recipe.optimizer.model_dump()),
        ema=None if training.ema is None else EmaSpec(decay=training.ema, clips=training.batch),
    )


def _superresolution(recipe: SuperresRecipe) -> Workload:
    from vcycle.tasks.superres.build import build_model, task_of
    from vcycle.tasks.superres.models import MODELS
    from vcycle.tasks.superres.plans import baseline_of

    training = recipe.training
    return Workload(
        settings=settings_of(recipe),
        task=task_of(recipe),
        build=lambda: build_model(recipe, recipe.run.seed),
        optimizer=OptimizerSpec(**recipe.optimizer.model_dump()),
        ema=None if training.ema is None else EmaSpec(decay=training.ema, clips=training.batch),
        role_of=MODELS.find(recipe.model.name).role_of(baseline_of(recipe, 1).roles),
    )
