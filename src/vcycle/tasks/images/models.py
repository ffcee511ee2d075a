"""Models of images: our own small one, torchvision's by their names there, timm's as ``timm/NAME``. Imports no torch.

Models take ``(B, 3, H, W)`` and return logits ``(B, classes)``.
"""

import re
from collections.abc import Mapping
from typing import Any

from vcycle.errors import RecipeError
from vcycle.plan import ShapeConstraints
from vcycle.tasks.classification.torchvision_models import IMAGENET, normalisation, torchvision_spec
from vcycle.tasks.model_options import ModelOptions, Share, Whole, Wholes
from vcycle.tasks.models import ModelRegistry, ModelSpec
from vcycle.utils.extras import require

__all__ = ["MODELS"]

_TIMM = "timm/"
_NETWORKS = "vcycle.tasks.images.networks"
_TORCHVISION = (
    *("convnext_tiny", "convnext_small", "convnext_base", "convnext_large"),
    *("densenet121", "densenet161", "densenet169", "densenet201"),
    *(f"efficientnet_b{size}" for size in range(8)),
    *("efficientnet_v2_s", "efficientnet_v2_m", "efficientnet_v2_l"),
    *("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"),
    *("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"),
    *(f"regnet_{family}_{size}" for family in "xy" for size in ("400mf", "800mf", "1_6gf", "3_2gf", "8gf", "16gf")),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    *("resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"),
    *("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"),
    *("swin_t", "swin_s", "swin_b", "swin_v2_t", "swin_v2_s", "swin_v2_b"),
)
"""Those that take images of any size from 32 pixels on."""
_VITS = {"vit_b_16": 16, "vit_b_32": 32, "vit_l_16": 16, "vit_l_32": 32, "vit_h_14": 14}
"""Vision transformers, and the pixels of their patches."""
_BRINGS = {"efficientnet_v2_l": normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))}
"""What weights were trained with that do not use ImageNet's mean and standard deviation."""
_HIERA_UNIT = 32
"""Pixels of a mask unit of Hiera, which no image may cut."""


class TinyOptions(ModelOptions):
    """Options of the small residual network."""

    widths: Wholes = (16, 32, 64, 128)
    """Channels of each stage; from the second on, each halves the resolution."""
    blocks: Whole = 1
    """Residual blocks per stage."""
    dropout: Share = 0.0
    """Dropout before the classifier."""


class ImageModels(ModelRegistry):
    """The registered models, and all of timm's."""

    def find(self, name: str) -> ModelSpec:
        """Return the model of a registered name, of ``timm/NAME``, or of ``module:attribute``."""
        if not name.startswith(_TIMM):
            return super().find(name)
        patch = re.search(r"_patch(\d+)", name)
        multiple = int(patch[1]) if patch else _HIERA_UNIT if name.startswith(f"{_TIMM}hiera_") else 1
        return ModelSpec(
            build=f"{_NETWORKS}:timm_model",
            task=self.task,
            fixed={"name": name.removeprefix(_TIMM)},
            needs=ShapeConstraints(min_size=multiple, size_multiple=multiple),
            downloads="pretrained",
            brings=lambda _: _timm_brings(name.removeprefix(_TIMM)),
        )


def _timm_brings(name: str) -> Mapping[str, Any]:
    """What timm's pretrained weights were trained with."""
    timm = require("timm", f"model '{_TIMM}{name}' needs")
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # it has no such weights
        raise RecipeError(f"model '{_TIMM}{name}': {error}") from error
    return {} if config is None else normalisation(config.mean, config.std)


MODELS = ImageModels(
    "images",
    {
        "resnet_tiny": ModelSpec(
            build=f"{_NETWORKS}:TinyResNet", task="images", options=TinyOptions, token_dropping=False
        ),
        **{
            name: torchvision_spec(name, ShapeConstraints(min_size=32), "images", brings=_BRINGS.get(name, IMAGENET))
            for name in _TORCHVISION
        },
        **{
            name: torchvision_spec(name, ShapeConstraints(min_size=patch, size_multiple=patch), "images")
            for name, patch in _VITS.items()
        },
    },
    arguments=1,  # the number of classes
)
