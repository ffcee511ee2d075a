"""Loads trained models together with their recipes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from vcycle.config.recipe import RecipeBase
from vcycle.errors import CheckpointError, RecipeError
from vcycle.tasks.base import Task, tasks
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.saved_weights import read_saved, refuse_untrained, run_meant, run_of

__all__ = ["LoadedModel", "load_initial", "load_model"]


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A trained model."""

    model: nn.Module
    """In evaluation mode, on the CPU."""
    task: Task[Any, Any]
    recipe: RecipeBase
    """The resolved recipe that it was trained with."""
    classes: tuple[str, ...]
    """Class names, in the order of its outputs; empty for a task without classes."""
    origin: str
    """The file of its weights."""
    step: int
    """Number of training steps; 0 if unknown."""


def load_model(
    path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False, accepted: Sequence[str] = ()
) -> LoadedModel:
    """Load a trained model.

    Args:
        path: A run folder (its newest readable checkpoint is loaded), a checkpoint of a run, or the output of `vcycle
            export`. Averaged weights (EMA) are preferred.
        on_message: Called with each checkpoint that cannot be read and is skipped.
        raw: Whether to load the raw weights instead of their average.
        accepted: The tasks that it may be of; by default any.

    Raises:
        CheckpointError: if the model is missing, untrained, unreadable or of another task, or the file has no recipe.
        RecipeError: if its recipe cannot be read.
    """
    if (run := run_of(path)) is not None:
        _refuse_other(load_recipe(str(run)), path, accepted)  # before reading files that another task may lack
    saved = read_saved(path, on_message, raw=raw)
    trained = saved.trained
    if trained is None:
        raise CheckpointError(
            f"{path} holds weights without a recipe: train from it with init={path}; to load a model, give a run "
            f"folder or the output of vcycle export{run_meant(path)}"
        )
    recipe = trained.recipe
    _refuse_other(recipe, path, accepted)
    refuse_untrained(path, saved.weights.source, trained.step)
    found = tasks[recipe.task]
    model = found.build_model(recipe, len(trained.classes), download=False)
    found.load_weights(model, saved.weights, recipe)
    return LoadedModel(
        model=model.eval(),
        task=found,
        recipe=recipe,
        classes=trained.classes,
        origin=saved.weights.source,
        step=trained.step,
    )


def load_initial(
    recipe: RecipeBase, classes: Sequence[str], on_message: Callable[[str], None] = lambda _: None
) -> LoadedModel:
    """Load a recipe's model with its initial weights, such as published ones.

    Raises:
        RecipeError: if the recipe sets no initial weights.
        CheckpointError: if they do not fit, or do not cover the whole model.
    """
    refuse_no_init(recipe)
    task = tasks[recipe.task]
    model = task.build_model(recipe, len(classes), download=False)
    if not task.init_weights(model, recipe, classes, on_message):
        raise CheckpointError(f"weights {recipe.init.path} do not cover the whole model {recipe.model.name}")
    return LoadedModel(
        model=model.eval(), task=task, recipe=recipe, classes=tuple(classes), origin=str(recipe.init.path), step=0
    )


def refuse_no_init(recipe: RecipeBase) -> None:
    """Refuse to evaluate a recipe without pretrained weights, before its data is read.

    Raises:
        RecipeError: if the recipe sets no weights, or a new classifier.
    """
    if recipe.init.path is None or getattr(recipe.init, "head", "keep") == "new":
        raise RecipeError(
            "the model of a recipe is untrained: give a run folder, the output of `vcycle export`, or weights of the "
            "whole model with init=FILE"
        )


def _refuse_other(recipe: RecipeBase, path: Path, accepted: Sequence[str]) -> None:
    if accepted and recipe.task not in accepted:
        others = ", ".join(f"`vcycle {name}`" for name in (*tasks[recipe.task].commands, "eval"))
        raise CheckpointError(
            f"{path} is a {recipe.task} model, but this command needs {' or '.join(accepted)}: use {others}"
        )
