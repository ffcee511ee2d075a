"""torchvision's video models by their names there."""

from vcycle.plan import ShapeConstraints
from vcycle.tasks.model_options import ModelOptions, Share
from vcycle.tasks.models import ModelSpec

__all__ = ["MODELS", "TorchvisionOptions"]


class TorchvisionOptions(ModelOptions):
    """Options of torchvision's models."""

    weights: str | None = None
    """torchvision's name of pretrained weights, such as `KINETICS400_V1`, which torchvision downloads."""
    dropout: Share | None = None
    """Dropout before the classifier, where the model has any; by default torchvision's own."""


_NEEDS = {
    "r3d_18": ShapeConstraints(),
    "mc3_18": ShapeConstraints(),
    "r2plus1d_18": ShapeConstraints(),
    "s3d": ShapeConstraints(min_frames=5, min_size=17),  # its strided pooling has no padding: below, nothing is left
    "swin3d_t": ShapeConstraints(),
    "swin3d_s": ShapeConstraints(),
    "swin3d_b": ShapeConstraints(),
    "mvit_v1_b": ShapeConstraints(),
    "mvit_v2_s": ShapeConstraints(),
}

MODELS = {
    name: ModelSpec(
        build="vcycle.tasks.recognition.models.torchvision.network:torchvision_model",
        options=TorchvisionOptions,
        fixed={"name": name},
        needs=needs,
        downloads="weights",
    )
    for name, needs in _NEEDS.items()
}
