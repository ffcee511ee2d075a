"""The average of a model's weights over its steps: a second model, which is the one that is evaluated."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vcycle.errors import RecipeError
from vcycle.train.shards import own

__all__ = ["Ema", "EmaSpec"]


@dataclass(frozen=True, kw_only=True)
class EmaSpec:
    """How far the average looks back, kept in samples: a batch m times as large decays it as m steps would."""

    decay: float
    """What is left of the average after a step of `clips` clips."""
    clips: int
    """The batch that the decay is stated for."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1 or self.clips < 1:
            raise RecipeError(
                f"an average of decay {self.decay:g} at {self.clips} clips: 0 or more and below 1 is accepted"
            )

    def share(self, batch: int) -> float:
        """What a step of `batch` clips adds of the new weights.

        >>> f"{EmaSpec(decay=0.999, clips=16).share(64):.6f}"
        '0.003994'
        """
        kept: float = self.decay ** (batch / self.clips)
        return 1 - kept


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
        kept, new = ([own(parameter) for parameter in each.parameters()] for each in (self.model, model))
        torch._foreach_lerp_(kept, new, share)
        for buffer, current in zip(self.model.buffers(), model.buffers(), strict=True):
            buffer.copy_(current)

    def state_dict(self) -> dict[str, Any]:
        """The averaged model's state, under the model's own names."""
        return self.model.state_dict()
