"""Defines super-resolution's objective: input conversion and the loss.

Clips arrive as uint8 `(B, T, H, W, 3)` at both resolutions; networks take float `(B, T, 3, H, W)` in 0..1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.superres.loss import charbonnier
from vcycle.tasks.superres.scale import SCALE

__all__ = ["Restoration", "video_of"]


def video_of(frames: Tensor) -> Tensor:
    """Float `(…, 3, H, W)` in 0..1 from uint8 `(…, H, W, 3)`, on the same device."""
    return frames.movedim(-1, -3).float().div_(255)


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """×4 super-resolution of every frame of a clip, or of the center frame."""

    mirrored: bool = False
    """Whether the second half of each clip is its first half reversed."""
    epsilon: float = 1e-6
    """The loss is quadratic for differences below this value and linear above, for pixels in 0..1."""

    def check(self, truth: Tensor) -> None:
        """Check the shape of the targets of a batch.

        Args:
            truth: The high-resolution targets.

        Raises:
            DataError: if they are something else, such as labels.
        """
        if truth.ndim != 5 or truth.shape[-1] != 3:
            raise DataError(f"targets of shape {tuple(truth.shape)}; accepted: high-resolution frames (B, T, H, W, 3)")

    def noise(self, batch: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        """A dummy batch of clips and targets, for warm-up and profiling."""
        frames, height, width = shape
        sizes = ((height, width), (SCALE * height, SCALE * width))
        clips, truth = (
            torch.randint(0, 256, (batch, frames, *size, 3), dtype=torch.uint8, device=device) for size in sizes
        )
        return clips, truth

    def predict(self, model: nn.Module, clips: Tensor) -> Tensor:
        """The model's restored frames, float `(B, N, 3, 4H, 4W)`, for clips, uint8 `(B, T, H, W, 3)`."""
        restored: Tensor = model(video_of(clips), mirrored=self.mirrored)
        return restored

    @property
    def mixes(self) -> bool:
        """Whether training mixes clips with others: never."""
        return False

    def loss(self, model: nn.Module, clips: Tensor, truth: Tensor, *, block: int | None = None) -> Tensor:
        """The training loss, the mean over pixels and clips.

        Args:
            model: The model; restores all frames, or the center frame.
            clips: uint8 `(B, T, H, W, 3)`.
            truth: uint8 `(B, T, 4H, 4W, 3)`.
            block: Unused: clips are independent.
        """
        restored = self.predict(model, clips)
        count = restored.shape[1]
        first = (truth.shape[1] - count) // 2
        return charbonnier(restored, video_of(truth[:, first : first + count]), eps_squared=self.epsilon**2)
