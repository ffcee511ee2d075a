"""Builds the model of a recipe."""

import torch
from torch import nn

from vcycle.tasks.classification.recipe import ClassificationRecipe
from vcycle.tasks.models import models_of

__all__ = ["build_model"]


def build_model(recipe: ClassificationRecipe, classes: int, *, download: bool = True) -> nn.Module:
    """Build the recipe's model, initialised with `run.seed`.

    Args:
        recipe: The recipe.
        classes: Number of outputs.
        download: Whether pretrained weights set in an option may be downloaded.
    """
    torch.manual_seed(recipe.run.seed)
    models = models_of(recipe.task)
    downloads = None if download else models.find(recipe.model.name).downloads
    options = {key: value for key, value in recipe.model.options.items() if key != downloads}
    return models.build(recipe.model.name, classes, **options)
