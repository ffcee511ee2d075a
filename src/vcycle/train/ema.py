"""Exponential moving average (EMA) of a model's weights: a second model, which is the one to evaluate.

This does not use `torch.optim.swa_utils.AveragedModel`: that class overwrites the average with the weights at its first
update, synchronizes with the device at each update to compare a counter, and cannot vary the decay with the batch.
"""

from copy import deepcopy

import torch
from torch import nn

from vcycle.train.config import EmaSpec
from vcycle.train.shards import local_shard

__all__ = ["Ema"]


class Ema:
    """The EMA model. It starts as a copy of the model; each update copies buffers, such as running statistics."""

    def __init__(self, model: nn.Module, spec: EmaSpec) -> None:
        """Copy a model, on its device."""
        self._spec = spec
        self.model = deepcopy(model).requires_grad_(False)
        """The averaged model."""

    @torch.no_grad()
    def update(self, model: nn.Module, batch: int) -> None:
        """Update the average after a step of `batch` clips, without synchronizing with the device."""
        share = self._spec.share(batch)
        kept, new = ([local_shard(parameter) for parameter in each.parameters()] for each in (self.model, model))
        torch._foreach_lerp_(kept, new, share)
        for buffer, current in zip(self.model.buffers(), model.buffers(), strict=True):
            buffer.copy_(current)
