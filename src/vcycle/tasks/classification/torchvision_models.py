"""Options of torchvision's models, and how they are registered. Imports no torch."""

from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import ModelOptions, Share
from vcycle.tasks.models import ModelSpec

__all__ = ["TorchvisionOptions", "torchvision_spec"]


class TorchvisionOptions(ModelOptions):
    """Options of torchvision's models."""

    weights: str | None = None
    """torchvision's name of pretrained weights, such as `KINETICS400_V1`, which torchvision downloads."""
    dropout: Share | None = None
    """Dropout before the classifier, where the model has any; by default torchvision's own."""


def torchvision_spec(name: str, needs: ShapeConstraints, task: str) -> ModelSpec:
    """What vcycle knows of one of torchvision's models, by its name there."""
    return ModelSpec(
        build="vcycle.tasks.classification.torchvision_network:torchvision_model",
        task=task,
        options=TorchvisionOptions,
        fixed={"name": name},
        needs=needs,
        downloads="weights",
        token_dropping=name.startswith("vit_"),
    )
