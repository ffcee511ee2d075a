"""The task of super-resolution: a clip as a network takes it, and the loss.

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
    """The task: every frame of a clip, or the centre one, four times as large."""

    mirrored: bool = False
    """Whether the second half of each clip is its first half in reverse."""
    epsilon: float = 1e-6
    """Where the loss turns from a square into a line, in light of 0..1."""

    def check(self, truth: Tensor) -> None:
        """Refuse what is not the truth of a batch of clips.

        Args:
            truth: At high resolution.

        Raises:
            DataError: if it is something else, such as labels.
        """
        if truth.ndim != 5 or truth.shape[-1] != 3:
            raise DataError(
                f"a truth of shape {tuple(truth.shape)}: frames at high resolution (B, T, H, W, 3) are accepted"
            )

    def noise(self, batch: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        """Clips and their truth as a batch has them, of no meaning: to measure with."""
        frames, height, width = shape
        sizes = ((height, width), (SCALE * height, SCALE * width))
        clips, truth = (
            torch.randint(0, 256, (batch, frames, *size, 3), dtype=torch.uint8, device=device) for size in sizes
        )
        return clips, truth

    def predict(self, model: nn.Module, clips: Tensor) -> Tensor:
        """The frames that a network restores, float `(B, N, 3, 4H, 4W)`, of clips, uint8 `(B, T, H, W, 3)`."""
        restored: Tensor = model(video_of(clips), mirrored=self.mirrored)
        return restored

    @property
    def mixes(self) -> bool:
        """Whether training mixes clips with others; it does not."""
        return False

    def loss(self, model: nn.Module, clips: Tensor, truth: Tensor, *, block: int | None = None) -> Tensor:
        """The training loss, the mean over pixels and clips.

        Args:
            model: Gives all frames, or the centre one.
            clips: uint8 `(B, T, H, W, 3)`.
            truth: uint8 `(B, T, 4H, 4W, 3)`.
            block: Clips that are normalised together; clips do not meet here.
        """
        del block
        restored = self.predict(model, clips)
        count = restored.shape[1]
        first = (truth.shape[1] - count) // 2
        return charbonnier(restored, video_of(truth[:, first : first + count]), eps_squared=self.epsilon**2)
