"""A trained model, loaded with the recipe it was trained by."""

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
    """The recipe that it was trained by, resolved."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of its outputs; none where the task has none."""
    origin: str
    """The file of its weights."""
    step: int
    """Steps that it was trained for; 0 where that is not known."""


def load_model(
    path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False, task: str | None = None
) -> LoadedModel:
    """Load a trained model.

    Args:
        path: The folder of a run, of which the newest readable checkpoint is taken, one of its checkpoints, or what
            `vcycle export` wrote; averaged weights where there are some.
        on_message: Called with each checkpoint that cannot be read and is skipped.
        raw: Whether to take the weights themselves all the same.
        task: The only task that will do.

    Raises:
        CheckpointError: if there is no trained model, it cannot be read, is of another task, or its file does not say
            what it is.
        RecipeError: if its recipe cannot be read.
    """
    if (run := run_of(path)) is not None:
        _refuse_other(load_recipe(str(run)), path, task)  # before what a run of another task may lack
    saved = read_saved(path, on_message, raw=raw)
    trained = saved.trained
    if trained is None:
        raise CheckpointError(
            f"{path} holds weights and does not say of which model: it can be trained from (init={path}); to be "
            f"opened, the folder of a run or a file that vcycle export wrote is accepted{run_meant(path)}"
        )
    recipe = trained.recipe
    _refuse_other(recipe, path, task)
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
    """A recipe's model with the weights that the recipe starts from, such as published ones.

    Raises:
        RecipeError: if it names none.
        CheckpointError: if they do not fit, or are not all of the model's.
    """
    refuse_no_init(recipe)
    task = tasks[recipe.task]
    model = task.build_model(recipe, len(classes), download=False)
    if not task.init_weights(model, recipe, classes, on_message):
        raise CheckpointError(f"weights {recipe.init.path} are not all of model {recipe.model.name}'s")
    return LoadedModel(
        model=model.eval(), task=task, recipe=recipe, classes=tuple(classes), origin=str(recipe.init.path), step=0
    )


def refuse_no_init(recipe: RecipeBase) -> None:
    """Refuse to evaluate a recipe whose model has no weights, before its data is looked for.

    Raises:
        RecipeError: if it names none, or draws a new classifier.
    """
    if recipe.init.path is None or getattr(recipe.init, "head", "keep") == "new":
        raise RecipeError(
            "a recipe's model is untrained: give the folder of a run, what `vcycle export` wrote, or all of a model's "
            "weights with init=FILE"
        )


def _refuse_other(recipe: RecipeBase, path: Path, task: str | None) -> None:
    if task is not None and recipe.task != task:
        others = ", ".join(f"`vcycle {name}`" for name in (*tasks[recipe.task].commands, "eval"))
        raise CheckpointError(f"{path} is a model of {recipe.task}, and this takes {task}: use {others}")
