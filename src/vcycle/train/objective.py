"""The interface of a task's objective: a loss, and dummy batches to try it with."""

from typing import Protocol

import torch
from torch import Tensor, nn

from vcycle.data import Batch
from vcycle.plan import Shape

__all__ = ["Objective", "noise_batch"]


class Objective(Protocol):
    """The training objective. Labels are the targets of the model's output."""

    @property
    def mixes(self) -> bool:
        """Whether clips are mixed within their block (mixup, CutMix)."""
        ...

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, /, *, block: int | None = None) -> Tensor:
        """The mean loss of a batch; clips are mixed within blocks of `block` clips, by default the whole batch."""
        ...

    def check(self, labels: Tensor, /) -> None:
        """Check labels, which are still on the host, and raise an error for invalid ones."""
        ...

    def noise(self, batch: int, shape: Shape, device: torch.device, /) -> tuple[Tensor, Tensor]:
        """The clips and labels of a dummy batch, for warm-up and profiling."""
        ...

    def predict(self, model: nn.Module, clips: Tensor, /) -> Tensor:
        """The model's output for the clips of a batch, without augmentation."""
        ...


def noise_batch(objective: Objective, clips: int, shape: Shape) -> Batch:
    """A dummy batch for warm-up and profiling, on the host like a loader's."""
    inputs, labels = objective.noise(clips, shape, torch.device("cpu"))
    nowhere = torch.full((clips,), -1)
    return Batch(clips=inputs, labels=labels, indices=nowhere, positions=nowhere, replaced=[], faults=[])
