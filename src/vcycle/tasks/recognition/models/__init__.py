"""Recognition's models. Names, options and shape constraints need no torch.

Example:
    >>> needs("slowfast_tiny").frames_multiple
    4
    >>> sum(p.numel() for p in build_model("r3d_tiny", 10).parameters())
    226362
"""

from typing import TYPE_CHECKING, Any

from vcycle.errors import RecipeError
from vcycle.tasks.models import ModelRegistry
from vcycle.tasks.recognition.models import resnet3d, slowfast, torchvision, videomae

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "build_model", "fully_convolutional", "names", "needs"]

MODELS = ModelRegistry(
    "recognition",
    {**resnet3d.MODELS, **slowfast.MODELS, **torchvision.MODELS, **videomae.MODELS},
    arguments=1,  # the number of classes
)
names = MODELS.names
needs = MODELS.needs


def build_model(name: str, classes: int, /, **options: Any) -> "nn.Module":
    """Build a model: ``(B, C, T, H, W)`` in, logits ``(B, classes)`` out.

    Args:
        name: One of :func:`names`, or ``module:attribute``.
        classes: Number of outputs.
        options: The model's options.

    Raises:
        RecipeError: if the model or an option is unknown, or a value is invalid.
    """
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 1:
        raise RecipeError(f"classes is {classes!r}; accepted: a whole number, at least 1")
    return MODELS.build(name, classes, **options)


def __getattr__(name: str) -> Any:
    if name != "fully_convolutional":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vcycle.tasks.classification.head import fully_convolutional  # needs torch

    return fully_convolutional
