"""The objective of images: recognition's, with a network for pictures."""

from dataclasses import dataclass

from torch import Tensor, nn

from vcycle.tasks.classification.objective import Recognition

__all__ = ["ImageObjective"]


@dataclass(frozen=True, kw_only=True)
class ImageObjective(Recognition):
    """Classification of clips of one frame by a network that takes `(B, C, H, W)`."""

    def _logits(self, model: nn.Module, x: Tensor) -> Tensor:
        return super()._logits(model, x.squeeze(2))
