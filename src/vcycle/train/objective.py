"""What training asks of a task: a loss, and clips to try it with."""

from typing import Protocol

import torch
from torch import Tensor, nn

from vcycle.data import Batch
from vcycle.plan import Shape

__all__ = ["Objective", "noise_batch"]


class Objective(Protocol):
    """What is minimised. Labels are whatever a model's output is compared with."""

    @property
    def mixes(self) -> bool:
        """Whether clips are mixed with others of their block."""
        ...

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, /, *, block: int | None = None) -> Tensor:
        """The mean loss of a batch; what is mixed is mixed within blocks of so many clips, by default the batch."""
        ...

    def check(self, labels: Tensor, /) -> None:
        """Refuse labels, still on the host, that are not of this task."""
        ...

    def noise(self, batch: int, shape: Shape, device: torch.device, /) -> tuple[Tensor, Tensor]:
        """The clips and labels of a dummy batch, for warm-up and profiling."""
        ...

    def predict(self, model: nn.Module, clips: Tensor, /) -> Tensor:
        """What a model makes of a batch's clips, without augmentation."""
        ...


def noise_batch(objective: Objective, clips: int, shape: Shape) -> Batch:
    """A dummy batch for warm-up and profiling, on the host as a loader gives it."""
    inputs, labels = objective.noise(clips, shape, torch.device("cpu"))
    nowhere = torch.full((clips,), -1)
    return Batch(clips=inputs, labels=labels, indices=nowhere, positions=nowhere, replaced=[], faults=[])
