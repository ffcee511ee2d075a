"""Builds torchvision's models, with a head for any number of classes and pooling for any shape."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from vcycle.errors import RecipeError
from vcycle.nn import any_shape
from vcycle.utils.extras import require

__all__ = ["torchvision_model"]


def torchvision_model(
    classes: int,
    *,
    name: str,
    weights: str | None = None,
    dropout: float | None = None,
    drop_path: float | None = None,
    width: int | None = None,
    blocks: Sequence[int] | None = None,
) -> nn.Module:
    """Build one of torchvision's models of videos or images.

    Args:
        classes: outputs. With ``weights`` of as many classes, their classifier is kept; otherwise it is replaced.
        name: torchvision's name, such as ``r3d_18``.
        weights: torchvision's name of pretrained weights, such as ``KINETICS400_V1``, downloaded by torchvision.
        dropout: before the classifier; None for torchvision's own. Not every model has it.
        drop_path: rate of stochastic depth of the last block; the others' change in proportion. Not every model has it.
        width: channels of the first stage of Swin3D or MViT v2; None for torchvision's own.
        blocks: transformer blocks of each of their stages; None for torchvision's own.

    Raises:
        NotInstalledError: torchvision is not installed.
        RecipeError: it does not know the name or the weights, or cannot load them; or the model has another size.
    """
    library = require("torchvision.models", f"model {name!r} needs")
    model: nn.Module
    if width is not None or blocks is not None:
        if weights is not None:
            raise RecipeError(f"weights {weights!r} of {name!r} go with its own size; leave width and blocks out")
        model = _sized(library.video, name, classes, width, blocks)
    elif weights is None:
        model = library.get_model(name, weights=None, num_classes=classes)
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
    if drop_path is not None:
        _set_drop_path(model, name, drop_path)
    return model


_SIZES = {
    "swin3d_t": (96, (2, 2, 6, 2), 32),
    "swin3d_s": (96, (2, 2, 18, 2), 32),
    "swin3d_b": (128, (2, 2, 18, 2), 32),
    "mvit_v2_s": (96, (1, 2, 11, 2), 96),
}
"""Channels of the first stage, blocks per stage, and channels of an attention head."""


def _sized(library: Any, name: str, classes: int, width: int | None, blocks: Sequence[int] | None) -> nn.Module:
    """Build a transformer of another size by the rules of the published one."""
    own_width, own_blocks, per_head = _SIZES[name]
    width, blocks = width or own_width, blocks or own_blocks
    heads = max(1, width // per_head)
    if width % heads:
        raise RecipeError(f"option 'width' of model {name!r} is {width}; accepted: a multiple of {per_head}, or less")
    if name.startswith("swin3d"):
        model: nn.Module = library.SwinTransformer3d(
            patch_size=[2, 4, 4],
            embed_dim=width,
            depths=list(blocks),
            num_heads=[heads << stage for stage in range(len(blocks))],
            window_size=[8, 7, 7],
            stochastic_depth_prob=0.1,
            num_classes=classes,
        )
        return model
    settings, before = [], width
    for stage, count in enumerate(blocks):
        keys = max(1, 8 >> stage)
        for block in range(count):
            first = stage > 0 and block == 0
            settings.append(
                library.mvit.MSBlockConfig(
                    num_heads=heads << stage,
                    input_channels=before,
                    output_channels=width << stage,
                    kernel_q=[3, 3, 3],
                    kernel_kv=[3, 3, 3],
                    stride_q=[1, 2, 2] if first else [1, 1, 1],
                    stride_kv=[1, keys, keys],
                )
            )
            before = width << stage
    model = library.MViT(
        spatial_size=(224, 224),
        temporal_size=16,
        block_setting=settings,
        residual_pool=True,
        residual_with_cls_embed=False,
        rel_pos_embed=True,
        proj_after_attn=True,
        stochastic_depth_prob=0.2,
        num_classes=classes,
    )
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


def _set_drop_path(model: nn.Module, name: str, rate: float) -> None:
    layers: list[Any] = [layer for layer in model.modules() if type(layer).__name__ == "StochasticDepth"]
    most = max((layer.p for layer in layers), default=0)
    if not most:
        raise RecipeError(f"model {name!r} has no stochastic depth; leave drop_path out")
    for layer in layers:
        layer.p *= rate / most
