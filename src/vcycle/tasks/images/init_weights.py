"""Loads initial weights of images' models, from a recipe's section `init`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from vcycle.errors import CheckpointError
from vcycle.nn.classifier import classifier_of
from vcycle.nn.weights.matching import load_matching
from vcycle.tasks.brought import brought_by, tell
from vcycle.tasks.images.recipe import ImagesRecipe
from vcycle.tasks.saved_weights import read_saved

__all__ = ["initialise"]


def initialise(
    model: nn.Module, recipe: ImagesRecipe, classes: Sequence[str], on_message: Callable[[str], None]
) -> bool:
    """Load a recipe's initial weights into its model, in place.

    Returns:
        Whether the whole model was loaded, with its classifier.

    Raises:
        CheckpointError: if the weights cannot be read or do not fit, or their classes are others.
    """
    brought = brought_by(recipe)
    if recipe.init.path is None:
        tell(recipe, brought, on_message)
        return False
    saved = read_saved(Path(recipe.init.path), on_message)
    weights, keep = saved.weights, recipe.init.head == "keep"
    if keep and saved.trained is not None and tuple(saved.trained.classes) != tuple(classes):
        raise CheckpointError(
            f"weights {weights.source}: their classifier has other classes than the images: init.head=new initialises "
            "a new one"
        )
    load_matching(model, weights, new=None if keep else classifier_of(model))
    on_message(f"init: weights from {weights.source}{'' if keep else ', with a new classifier'}")
    tell(recipe, brought, on_message)
    return keep
