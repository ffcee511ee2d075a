"""The average of a model's weights over its steps: a second model, which is the one that is evaluated.

Not `torch.optim.swa_utils.AveragedModel`: that replaces the average by the weights at its first update, compares a
counter on the device at each one, which the host waits for, and has no argument for how far a batch decays it.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from vcycle.train.config import EmaSpec
from vcycle.train.shards import local_shard

__all__ = ["Ema"]


class Ema:
    """The averaged model. It begins as the model is; buffers, such as running statistics, are the model's own."""

    def __init__(self, model: nn.Module, spec: EmaSpec) -> None:
        """Copy a model, where it is."""
        self._spec = spec
        self.model = deepcopy(model).requires_grad_(False)
        """The averaged model."""

    @torch.no_grad()
    def update(self, model: nn.Module, batch: int) -> None:
        """Take in a model's weights after a step of so many clips; the host does not wait for the device."""
        share = self._spec.share(batch)
        kept, new = ([local_shard(parameter) for parameter in each.parameters()] for each in (self.model, model))
        torch._foreach_lerp_(kept, new, share)
        for buffer, current in zip(self.model.buffers(), model.buffers(), strict=True):
            buffer.copy_(current)

    def state_dict(self) -> dict[str, Any]:
        """The averaged model's state, under the model's own names."""
        return self.model.state_dict()
