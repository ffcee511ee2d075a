"""Options of torchvision's models, and how they are registered. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import Depths, ModelOptions, Share, Whole
from vcycle.tasks.models import ModelSpec

__all__ = ["IMAGENET", "SizedOptions", "TorchvisionOptions", "normalisation", "torchvision_spec"]


class TorchvisionOptions(ModelOptions):
    """Options of torchvision's models."""

    weights: str | None = None
    """torchvision's name of pretrained weights, such as `KINETICS400_V1`, which torchvision downloads."""
    dropout: Share | None = None
    """Dropout before the classifier, where the model has any; by default torchvision's own."""
    drop_path: Share | None = None
    """Stochastic depth, where the model has any: the rate of the last block; by default torchvision's own."""


class SizedOptions(TorchvisionOptions):
    """Options of torchvision's video transformers that can be narrower and shallower."""

    width: Whole | None = None
    """Channels of the first stage; each stage has twice as many as the one before. By default torchvision's."""
    blocks: Depths | None = None
    """Transformer blocks of each stage; by default torchvision's."""


def normalisation(mean: tuple[float, float, float], std: tuple[float, float, float]) -> Mapping[str, Any]:
    """The recipe keys of a mean and a standard deviation per channel, as `ModelSpec.brings` has them."""
    return {"sampling.mean": mean, "sampling.std": std}


IMAGENET = normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def torchvision_spec(
    name: str,
    needs: ShapeConstraints,
    task: str,
    *,
    options: type[TorchvisionOptions] = TorchvisionOptions,
    brings: Mapping[str, Any] = IMAGENET,
) -> ModelSpec:
    """What vcycle knows of one of torchvision's models, by its name there.

    Args:
        name: Its name.
        needs: What it needs of a clip's shape.
        task: The task that it is for.
        options: Its options.
        brings: What its weights were trained with; torchvision's `Weights.transforms()` say it.
    """
    return ModelSpec(
        build="vcycle.tasks.classification.torchvision_network:torchvision_model",
        task=task,
        options=options,
        fixed={"name": name},
        needs=needs,
        downloads="weights",
        token_dropping=name.startswith("vit_"),
        brings=brings,
    )
