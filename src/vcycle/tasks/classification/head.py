"""The classifier on top of a network, and its fully convolutional test."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcycle.errors import RecipeError

__all__ = ["Activation", "Head", "fully_convolutional"]

Activation = Literal["softmax", "sigmoid"]


class Head(nn.Module):
    """Global average pooling of each pathway, concatenation, dropout and a linear classifier.

    Pooling is global, so any shape gives logits ``(B, classes)``.

    Args:
        channels: of all pathways together.
        classes: outputs.
        dropout: before the classifier.
        stride: pixels of the network's input from one position of the pathways to the next.
    """

    def __init__(self, channels: int, classes: int, dropout: float, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(channels, classes)
        self._averaged: tuple[int, Activation] | None = None
        """Side and activation within `fully_convolutional`."""

    def forward(self, pathways: Iterable[Tensor]) -> Tensor:
        """Return logits ``(B, classes)`` of pathways ``(B, C, T, H, W)``."""
        pathways = list(pathways)
        if self._averaged is not None and not self.training:
            side, activation = self._averaged
            logits = self.positions(pathways, side)
            if logits.shape[1] > 1:
                return _logits_of_mean(logits.float(), activation)
        pooled = torch.cat([x.mean((2, 3, 4)) for x in pathways], dim=1)
        result: Tensor = self.projection(self.dropout(pooled))
        return result

    def positions(self, pathways: Sequence[Tensor], side: int) -> Tensor:
        """Return the logits of every place where a picture of another size fits, ``(B, places, classes)``.

        Features are averaged over all frames and over windows of the extent that they have for a picture of ``side`` by
        ``side`` pixels, moved by one position. A dimension below ``side`` is one window.

        Args:
            pathways: ``(B, C, T, H, W)`` each, of the same height and width.
            side: pixels, usually those trained at.
        """
        cells = math.ceil(side / self.stride)
        height, width = pathways[0].shape[-2:]
        window = (min(cells, height), min(cells, width))
        pooled = torch.cat([F.avg_pool2d(x.mean(2), window, stride=1) for x in pathways], dim=1)
        logits: Tensor = self.projection(self.dropout(pooled.flatten(2).transpose(1, 2)))
        return logits


@contextmanager
def fully_convolutional(model: nn.Module, side: int, activation: Activation = "softmax") -> Iterator[None]:
    """Within, a model in evaluation mode classifies every place where a picture of ``side`` pixels fits.

    This is how the published networks are tested on pictures larger than they were trained on: SlowFast trained at 224
    and tested at 256 has 2×2 places, whose probabilities are averaged. Logits stay logits ``(B, classes)``: their
    activation is the mean of the places' activations. Pictures of up to ``side`` pixels, training mode and the model
    afterwards are as ever.

    Args:
        model: SlowFast or a ResNet of the catalog; wrapped and converted models too.
        side: pixels that the model was trained at.
        activation: what makes probabilities of the logits: ``softmax``, or ``sigmoid`` for several labels per clip.

    Raises:
        RecipeError: the model has no such classifier (torchvision's have not), or ``activation`` is something else.
    """
    if activation not in get_args(Activation):
        raise RecipeError(f"activation {activation!r} is unknown; accepted: {', '.join(get_args(Activation))}")
    heads = [module for module in model.modules() if isinstance(module, Head)]
    if not heads:
        raise RecipeError(f"{type(model).__name__} pools whole pictures only: it has no fully convolutional test")
    before = [head._averaged for head in heads]
    for head in heads:
        head._averaged = (side, activation)
    try:
        yield
    finally:
        for head, value in zip(heads, before, strict=True):
            head._averaged = value


def _logits_of_mean(logits: Tensor, activation: Activation) -> Tensor:
    """Return logits ``(B, classes)`` whose activation is the mean over places of that of ``(B, places, classes)``."""
    if activation == "softmax":
        return _log_mean(logits.log_softmax(-1))
    return _log_mean(F.logsigmoid(logits)) - _log_mean(F.logsigmoid(-logits))


def _log_mean(logs: Tensor) -> Tensor:
    return logs.logsumexp(1) - math.log(logs.shape[1])
