"""Inflates the weights of image models for video models: repeats 2-D kernels in time (Carreira and Zisserman 2017)."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["inflate", "is_image_resnet", "pyslowfast_names"]

_STEM = {"conv1": "conv", "bn1": "bn"}
_LAYER = re.compile(r"layer(\d)\.(\d+)\.(?:conv([123])|bn([123])|downsample\.([01]))\.(\w+)")


def is_image_resnet(state: Mapping[str, Tensor]) -> bool:
    """Whether weights are those of a 2-D ResNet under the names of torchvision and timm."""
    stem = state.get("conv1.weight")
    return stem is not None and stem.dim() == 4 and any(name.startswith("layer1.0.") for name in state)


def pyslowfast_names(state: Mapping[str, Tensor]) -> dict[str, str]:
    """PySlowFast's names of a 2-D ResNet's tensors in a network's first pathway; without its classifier.

    What has no place there keeps its name.

    Example:
        >>> pyslowfast_names({"layer3.0.downsample.1.weight": torch.ones(4)})
        {'layer3.0.downsample.1.weight': 's4.pathway0_res0.branch1_bn.weight'}
    """
    return {name: _name(name) for name in state if not name.startswith("fc.")}


def _name(name: str) -> str:
    layer, _, end = name.partition(".")
    if layer in _STEM:
        return f"s1.pathway0_stem.{_STEM[layer]}.{end}"
    found = _LAYER.fullmatch(name)
    if found is None:
        return name
    stage, block, conv, norm, projection, end = found.groups()
    inner = {"0": "branch1", "1": "branch1_bn"}[projection] if projection else f"branch2.{'abc'[int(conv or norm) - 1]}"
    return f"s{int(stage) + 1}.pathway0_res{block}.{inner}{'_bn' if norm else ''}.{end}"


def inflate(tensor: Tensor, own: Tensor) -> Tensor:
    """Inflate a tensor of a 2-D model for a 3-D model.

    A kernel is repeated in time and divided by its length, so that a still clip gives the same output as its image. If
    the 3-D layer has more inputs (from a fast pathway), their weights are unchanged.

    Args:
        tensor: `(O, I, H, W)`, or one value per channel.
        own: The network's own, `(O, I', T, H, W)` with `I' ≥ I`; or one value per channel.

    Returns:
        A tensor of `own`'s shape, or `tensor` as it is if that cannot be.
    """
    if tensor.dim() != 4 or own.dim() != 5:
        return tensor
    inputs, time = tensor.shape[1], own.shape[2]
    if own.shape[1] < inputs:
        return tensor
    still = tensor.unsqueeze(2).expand(-1, -1, time, -1, -1) / time
    if own.shape[:1] + own.shape[2:] != still.shape[:1] + still.shape[2:]:
        return tensor
    return own if own.is_meta else torch.cat([still, own[:, inputs:].to(still)], dim=1)
