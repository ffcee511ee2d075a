"""torchvision's video models by their names there."""

from vcycle.plan import ShapeConstraints
from vcycle.tasks.classification.torchvision_models import (
    IMAGENET,
    SizedOptions,
    TorchvisionOptions,
    normalisation,
    torchvision_spec,
)

__all__ = ["MODELS", "TorchvisionOptions"]

_ANY = ShapeConstraints()
_S3D = ShapeConstraints(min_frames=5, min_size=17)  # its strided pooling has no padding: below, nothing is left
_KINETICS = normalisation((0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989))
_PYSLOWFAST = normalisation((0.45, 0.45, 0.45), (0.225, 0.225, 0.225))

MODELS = {
    name: torchvision_spec(name, needs, "recognition", options=options, brings=brings)
    for name, needs, options, brings in (
        ("r3d_18", _ANY, TorchvisionOptions, _KINETICS),
        ("mc3_18", _ANY, TorchvisionOptions, _KINETICS),
        ("r2plus1d_18", _ANY, TorchvisionOptions, _KINETICS),
        ("s3d", _S3D, TorchvisionOptions, _KINETICS),
        ("swin3d_t", _ANY, SizedOptions, IMAGENET),
        ("swin3d_s", _ANY, SizedOptions, IMAGENET),
        ("swin3d_b", _ANY, SizedOptions, IMAGENET),
        ("mvit_v1_b", _ANY, TorchvisionOptions, _PYSLOWFAST),
        ("mvit_v2_s", _ANY, SizedOptions, _PYSLOWFAST),
    )
}
