"""The task of super-resolution: a clip as a network takes it, and the loss.

Clips arrive as uint8 `(B, T, H, W, 3)` at both resolutions; networks take float `(B, T, 3, H, W)` in 0..1.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from vcycle.errors import DataError
from vcycle.tasks.superres.loss import charbonnier

__all__ = ["Restoration", "video_of"]


def video_of(frames: Tensor) -> Tensor:
    """Float `(…, 3, H, W)` in 0..1 from uint8 `(…, H, W, 3)`, on the same device."""
    return frames.movedim(-1, -3).float().div_(255)


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """The task: every frame of a clip, or the centre one, four times as large."""

    mirrored: bool = False
    """Whether the second half of each clip is its first half in reverse."""

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

    def predict(self, model: nn.Module, clips: Tensor) -> Tensor:
        """The frames that a network restores, float `(B, N, 3, 4H, 4W)`, of clips, uint8 `(B, T, H, W, 3)`."""
        restored: Tensor = model(video_of(clips), mirrored=self.mirrored)
        return restored

    def loss(self, model: nn.Module, clips: Tensor, truth: Tensor) -> Tensor:
        """The training loss, the mean over pixels and clips.

        Args:
            model: Gives all frames, or the centre one.
            clips: uint8 `(B, T, H, W, 3)`.
            truth: uint8 `(B, T, 4H, 4W, 3)`.
        """
        restored = self.predict(model, clips)
        count = restored.shape[1]
        first = (truth.shape[1] - count) // 2
        return charbonnier(restored, video_of(truth[:, first : first + count]))
