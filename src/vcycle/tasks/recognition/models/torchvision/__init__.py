"""torchvision's video models by their names there."""

from vcycle.plan import ShapeConstraints
from vcycle.tasks.classification.torchvision_models import TorchvisionOptions, torchvision_spec

__all__ = ["MODELS", "TorchvisionOptions"]

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

MODELS = {name: torchvision_spec(name, needs, "recognition") for name, needs in _NEEDS.items()}
