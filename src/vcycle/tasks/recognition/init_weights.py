"""Builds recognition models and loads their initial weights, from a recipe's section `init`."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vcycle.errors import CheckpointError
from vcycle.tasks.brought import Brought, brought_by, options_brought_by, tell, tell_options
from vcycle.tasks.classification.build import build_model
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.tasks.recognition.weights.loading import LoadReport, load_pretrained
from vcycle.tasks.recognition.weights.record import UNSEEN, Record, record_in
from vcycle.tasks.saved_weights import Provenance, read_saved

__all__ = ["build_model", "initialise"]


def initialise(
    model: nn.Module,
    recipe: RecognitionRecipe,
    classes: Sequence[str],
    on_message: Callable[[str], None] = lambda _: None,
) -> LoadReport | None:
    """Load a recipe's initial weights into its model, in place.

    Args:
        model: The recipe's model.
        recipe: The recipe.
        classes: The class names of its videos, in the order of the model's outputs.
        on_message: Called with a summary of what was loaded, and with warnings.

    Returns:
        The report; None if the recipe sets no weights.

    Raises:
        CheckpointError: if the weights cannot be read or do not fit.
    """
    brought = brought_by(recipe)
    if recipe.init.path is None:
        tell(recipe, brought, on_message)
        return None
    kept = read_saved(Path(recipe.init.path), on_message)
    weights = kept.weights
    if kept.trained is not None:
        record = _record_of(kept.trained, recipe.init.path)
    else:
        record = record_in(weights.config)
        if record.mean is not None and record.std is not None:
            values = {"sampling.mean": record.mean, "sampling.std": record.std}
            brought = Brought(values=values, source=f"weights {weights.source}")
    taken = load_pretrained(model, weights, name=recipe.model.name, head=recipe.init.head, record=record)
    if recipe.init.head == "keep":
        if kept.trained is not None:
            _check_classes(weights.source, kept.trained.classes, classes, str)
        elif not all(name.isdigit() for name in classes):  # numbers in a list name nothing
            _check_classes(weights.source, record.classes, classes, _words)
    on_message(f"init: {taken.summary}")
    for warning in taken.warnings:
        on_message(f"warning: {warning}")
    tell(recipe, brought, on_message)
    tell_options(recipe, options_brought_by(recipe), on_message)
    return taken


def _check_classes(source: str, theirs: Sequence[str], own: Sequence[str], as_read: Callable[[str], str]) -> None:
    """Refuse a classifier whose classes have other names than the videos', as they are read."""
    for label, (first, second) in enumerate(zip(theirs, own, strict=False)):
        if as_read(first) != as_read(second):
            raise CheckpointError(
                f"weights {source}: class {label} of their classifier is {first!r}, but {second!r} in the videos: "
                "init.head=new initialises a new one"
            )


def _words(name: str) -> str:
    """The words of a class, however they are joined: `air drumming` and `air_drumming` are one."""
    return re.sub(r"[\W_]+", " ", name).strip().casefold()


def _record_of(trained: Provenance, source: str) -> Record:
    """The settings of the training that the weights do not show."""
    recipe = trained.recipe
    if not isinstance(recipe, RecognitionRecipe):
        raise CheckpointError(f"{source} is a {recipe.task} model; accepted: a recognition model")
    with torch.device("meta"):
        model = build_model(recipe, len(trained.classes), download=False)
    unseen: dict[str, Any] = {what: getattr(model, what, None) for what in UNSEEN}
    return Record(**unseen)
