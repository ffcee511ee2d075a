"""What is measured of a recipe, whichever its task: the model, and what trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from vcycle.tasks.recognition.recipe import Recipe
from vcycle.train.config import EmaSpec, TrainConfig
from vcycle.train.objective import Objective

if TYPE_CHECKING:
    from vcycle.tasks.recipes import AnyRecipe
    from vcycle.tasks.superres.recipe import SuperresRecipe

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


def workload_of(recipe: AnyRecipe, classes: int) -> Workload:
    """What is measured of a recipe.

    Args:
        recipe: Of any task.
        classes: Outputs of a model of recognition.
    """
    return _recognition(recipe, classes) if isinstance(recipe, Recipe) else _superresolution(recipe)


def _config(recipe: AnyRecipe) -> TrainConfig:
    training = recipe.training
    return TrainConfig(
        run=recipe.run,
        loading=recipe.data,
        optimizer=recipe.optimizer,
        ema=None if training.ema is None else EmaSpec(decay=training.ema, clips=training.batch),
        clip_grad_norm=training.clip_grad_norm,
    )


def _recognition(recipe: Recipe, classes: int) -> Workload:
    from vcycle.nn import freeze
    from vcycle.runs.loaded_model import without_downloads
    from vcycle.tasks.recognition.build import build_model, task_of

    training = recipe.training
    return Workload(
        config=_config(recipe),
        objective=task_of(recipe, classes),
        build=lambda: freeze(build_model(without_downloads(recipe), classes, recipe.run.seed), training.freeze),
    )


def _superresolution(recipe: SuperresRecipe) -> Workload:
    from vcycle.tasks.superres.build import build_model, task_of
    from vcycle.tasks.superres.models.roles import role_by_name
    from vcycle.tasks.superres.plans import baseline_of

    return Workload(
        config=_config(recipe),
        objective=task_of(recipe),
        build=lambda: build_model(recipe, recipe.run.seed),
        role_of=role_by_name(baseline_of(recipe, 1).roles),
    )
