"""The task of recognition: a clip as a model takes it, and the loss.

Clips arrive as uint8 `(B, T, H, W, C)`; models take float `(B, C, T, H, W)`. Channels come last in memory
throughout: moving from one to the other copies nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vcycle.errors import DataError

__all__ = ["Recognition"]


@dataclass(frozen=True, kw_only=True)
class Recognition:
    """The task: one label per clip."""

    classes: int
    """Number of classes."""
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    """Mean per channel, of values in 0..1."""
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)
    """Standard deviation per channel."""
    label_smoothing: float = 0.0
    """Label smoothing of the training loss."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise DataError(f"the videos are of {self.classes} class: at least 2 are needed to tell apart")

    def inputs(self, clips: Tensor) -> Tensor:
        """Normalised float `(B, C, T, H, W)` from uint8 `(B, T, H, W, C)`, on the same device."""
        mean = torch.tensor(self.mean, device=clips.device).mul_(255)
        scale = torch.tensor(self.std, device=clips.device).mul_(255).reciprocal_()
        return clips.float().sub_(mean).mul_(scale).permute(0, 4, 1, 2, 3)

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor) -> Tensor:
        """The training loss, the mean over the clips of a batch.

        Args:
            model: Maps `(B, C, T, H, W)` to logits `(B, classes)`.
            clips: uint8 `(B, T, H, W, C)`.
            labels: int64 `(B,)`.
        """
        logits = model(self.inputs(clips))
        return functional.cross_entropy(logits.float(), labels, label_smoothing=self.label_smoothing)
