"""Builds torchvision's models, with a head for any number of classes and pooling for any shape."""

from typing import Any

from torch import nn

from vcycle.errors import RecipeError
from vcycle.nn import any_shape
from vcycle.utils.extras import require

__all__ = ["torchvision_model"]


def torchvision_model(
    classes: int, *, name: str, weights: str | None = None, dropout: float | None = None
) -> nn.Module:
    """Build one of torchvision's models of videos or images.

    Args:
        classes: outputs. With ``weights`` of as many classes, their classifier is kept; otherwise it is replaced.
        name: torchvision's name, such as ``r3d_18``.
        weights: torchvision's name of pretrained weights, such as ``KINETICS400_V1``, downloaded by torchvision.
        dropout: before the classifier; None for torchvision's own. Not every model has it.

    Raises:
        NotInstalledError: torchvision is not installed.
        RecipeError: it does not know the name or the weights, or cannot load them.
    """
    library = require("torchvision.models", f"model {name!r} needs")
    if weights is None:
        model: nn.Module = library.get_model(name, weights=None, num_classes=classes)
    else:
        known = library.get_model_weights(name)
        if weights not in known.__members__:
            raise RecipeError(f"weights {weights!r} of {name!r} are unknown; accepted: {', '.join(known.__members__)}")
        try:
            model = library.get_model(name, weights=known[weights])
        except OSError as error:
            raise RecipeError(f"weights {weights!r} of {name!r} could not be loaded: {error}") from error
        _replace_classifier(model, classes)
    if isinstance(getattr(model, "avgpool", None), nn.AvgPool3d):  # s3d pools a fixed extent
        model.avgpool = nn.AdaptiveAvgPool3d(1)
    any_shape(model, strict=False)
    if dropout is not None:
        _set_dropout(model, name, dropout)
    return model


def _classifier(model: nn.Module) -> tuple[Any, str]:
    """Return the module that holds the last layer, and the layer's name in it."""
    for attribute in ("fc", "head", "heads", "classifier"):
        layer = getattr(model, attribute, None)
        if isinstance(layer, nn.Sequential):
            return layer, list(layer._modules)[-1]
        if layer is not None:
            return model, attribute
    raise RecipeError(f"{type(model).__name__} has no classifier that could be replaced")


def _replace_classifier(model: nn.Module, classes: int) -> None:
    holder, name = _classifier(model)
    layer = getattr(holder, name)
    if isinstance(layer, nn.Linear):
        if layer.out_features != classes:
            setattr(holder, name, nn.Linear(layer.in_features, classes))
    elif layer.out_channels != classes:  # s3d classifies by a 1x1x1 convolution
        setattr(holder, name, nn.Conv3d(layer.in_channels, classes, 1))


def _set_dropout(model: nn.Module, name: str, dropout: float) -> None:
    holder, _ = _classifier(model)
    layers = [layer for layer in holder.children() if isinstance(layer, nn.Dropout)]
    if not layers:
        raise RecipeError(f"model {name!r} has no dropout before its classifier; leave dropout out")
    for layer in layers:
        layer.p = dropout
