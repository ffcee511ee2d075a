"""Finds the classifier of a model: the layer whose outputs are the classes."""

from torch import nn

from vcycle.errors import RecipeError

__all__ = ["classifier_of"]


def classifier_of(model: nn.Module) -> str:
    """Return the name of a model's classifier: its last linear or convolution layer, in order of definition.

    Raises:
        RecipeError: there is no such layer.

    Example:
        >>> classifier_of(nn.Sequential(nn.Conv3d(3, 8, 1), nn.Flatten(), nn.Linear(8, 4)))
        '2'
    """
    layers: list[str] = [name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv3d)]
    if not layers:
        raise RecipeError(f"{type(model).__name__} has no linear or convolution layer that could be its classifier")
    return layers[-1]
