"""The weights that a training begins with: a recipe's section `init`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vcycle.errors import CheckpointError
from vcycle.runs.loaded_model import Trained, read_kept, without_downloads
from vcycle.tasks.recipes import recognition
from vcycle.tasks.recognition.build import build_model
from vcycle.tasks.recognition.recipe import Recipe
from vcycle.tasks.recognition.weights.loading import Taken, take_weights
from vcycle.tasks.recognition.weights.record import UNSEEN, Record, pyslowfast_record

__all__ = ["check_init", "initialise"]

_NEAR = 0.02
"""How far means and deviations of colours may be apart and still count as the same, in values of 0..1."""


def check_init(recipe: Recipe, classes: Sequence[str]) -> None:
    """Check that a recipe's first weights fit its model, without building it.

    Args:
        recipe: The recipe; where it names no weights there is nothing to check.
        classes: Names of the classes of its videos.

    Raises:
        CheckpointError: if the weights cannot be read or do not fit.
    """
    if recipe.init.path is not None:
        with torch.device("meta"):
            model = build_model(without_downloads(recipe), len(classes), recipe.run.seed)
        initialise(model, recipe, classes)


def initialise(
    model: nn.Module, recipe: Recipe, classes: Sequence[str], on_message: Callable[[str], None] = lambda _: None
) -> Taken | None:
    """Load a recipe's first weights into its model, in place.

    Args:
        model: The recipe's model.
        recipe: The recipe.
        classes: Names of the classes of its videos, in the order of the model's outputs.
        on_message: Told what was taken, and what should be known of it.

    Returns:
        What was taken; None where the recipe names no weights.

    Raises:
        CheckpointError: if the weights cannot be read or do not fit.
    """
    if recipe.init.path is None:
        return None
    kept = read_kept(Path(recipe.init.path), on_message)
    weights = kept.weights
    if kept.trained is not None:
        record = _record_of(kept.trained, recipe.init.path)
    else:
        record = pyslowfast_record(weights.config)
    taken = take_weights(model, weights, name=recipe.model.name, head=recipe.init.head, record=record)
    if recipe.init.head == "keep" and kept.trained is not None:
        for label, (theirs, own) in enumerate(zip(kept.trained.classes, classes, strict=True)):
            if theirs != own:
                raise CheckpointError(
                    f"weights {weights.source}: class {label} of their classifier is {theirs!r}, and of the videos "
                    f"{own!r}: init.head=new draws a new one"
                )
    on_message(f"init: {taken.summary}")
    for warning in (*taken.warnings, *_colours(weights.source, record, recipe)):
        on_message(f"warning: {warning}")
    return taken


def _colours(source: str, record: Record, recipe: Recipe) -> list[str]:
    """Colours that are scaled otherwise than those that the weights were trained on."""
    sampling = recipe.sampling
    return [
        f"weights {source}: they were trained with sampling.{key}={list(theirs)}, this is {list(own)}"
        for key, theirs, own in (("mean", record.mean, sampling.mean), ("std", record.std, sampling.std))
        if theirs is not None and any(abs(a - b) > _NEAR for a, b in zip(theirs, own, strict=True))
    ]


def _record_of(trained: Trained, source: str) -> Record:
    """What the recipe says that the weights do not show."""
    recipe = without_downloads(recognition(trained.recipe, source))
    with torch.device("meta"):
        model = build_model(recipe, len(trained.classes), 0)
    unseen: dict[str, Any] = {what: getattr(model, what, None) for what in UNSEEN}
    return Record(**unseen, mean=recipe.sampling.mean, std=recipe.sampling.std)
