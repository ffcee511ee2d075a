"""Augmentation by torchvision's transforms, applied so that a clip stays consistent in time.

Nothing here has a generator of its own: draws come from torch's global one, which the dataset keys to a request and
the training loop to a step. So neither the number of workers nor a resume changes them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vcycle.errors import RecipeError
from vcycle.utils.versions import pip_torchvision

try:
    from torchvision import tv_tensors
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional
except ImportError as error:
    raise RecipeError(f"augment is torchvision's, which is not installed: {pip_torchvision()} ({error})") from error

__all__ = ["ClipAugment", "Mixing"]


class ClipAugment:
    """RandAugment of a clip (Cubuk et al. 2020): the same operations at the same strength in every frame.

    Operations that look at the range of a picture (contrast, auto-contrast, equalise) look at that of the whole clip,
    so that what stands still does not flicker as something else moves.
    """

    def __init__(self, *, ops: int = 2, magnitude: int = 9, fill: Sequence[float] = (0.45, 0.45, 0.45)) -> None:
        """Set it up.

        Args:
            ops: Operations in a row.
            magnitude: Strength of each, 0 to 30.
            fill: Colour where an operation moves the picture's edge into sight, in 0..1.
        """
        colour = [round(255 * value) for value in fill]
        self._transform = v2.RandAugment(ops, magnitude, interpolation=v2.InterpolationMode.BILINEAR, fill=colour)

    def __call__(self, clip: Tensor) -> Tensor:
        """The clip augmented, uint8 `(T, H, W, 3)` in and out; itself untouched."""
        frames = self._transform(clip.permute(0, 3, 1, 2).as_subclass(_Clip))
        plain: Tensor = frames.as_subclass(Tensor)
        return plain.permute(0, 2, 3, 1)


class Mixing:
    """Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of the clips of a batch, on its device.

    Each clip is mixed with the one before it in its block, the first with the last; the order of the samples is keyed
    already, and blocks are not cut by ranks or micro-batches. A step draws one share for all its clips and, where both
    are asked for, which of the two it takes.
    """

    def __init__(self, *, classes: int, mixup: float | None = None, cutmix: float | None = None) -> None:
        """Set it up.

        Args:
            classes: Number of classes.
            mixup: α of the share's distribution Beta(α, α) for mixup; None for none.
            cutmix: The same for CutMix.
        """
        ways: list[Any] = []
        if mixup is not None:
            ways.append(v2.MixUp(alpha=mixup, num_classes=classes))
        if cutmix is not None:
            ways.append(v2.CutMix(alpha=cutmix, num_classes=classes))
        self._mix: Callable[..., Any] = ways[0] if len(ways) == 1 else v2.RandomChoice(ways)

    def __call__(self, clips: Tensor, labels: Tensor, block: int) -> tuple[Tensor, Tensor]:
        """The clips and their labels mixed.

        Args:
            clips: float `(B, C, T, H, W)`.
            labels: int64 `(B,)`, or float `(B, classes)` where a video has several.
            block: Clips in a block; the last may have fewer.

        Returns:
            Clips as they came, channels last in memory, and labels float `(B, classes)`.
        """
        drawn = torch.get_rng_state()
        blocks = []
        for some, of_these in zip(torch.split(clips, block), torch.split(labels, block), strict=True):
            torch.set_rng_state(drawn)  # every block draws the same
            frames, mixed_labels = self._mix(some.transpose(1, 2).as_subclass(tv_tensors.Video), of_these)
            blocks.append((frames.as_subclass(Tensor), mixed_labels))
        mixed = torch.cat([frames for frames, _ in blocks]).transpose(1, 2)
        return mixed.contiguous(memory_format=torch.channels_last_3d), torch.cat([labels for _, labels in blocks])


class _Clip(tv_tensors.Video):  # type: ignore[misc]
    """Frames `(T, C, H, W)` of one clip, whose range of values torchvision is to take over all of them."""


def _over_all_frames(kernel: Callable[..., Tensor]) -> Callable[..., _Clip]:
    """An operation on a picture, done to the frames as one: stacked upon each other."""

    def of_clip(clip: Any, *args: Any, **options: Any) -> _Clip:
        frames, channels, height, width = clip.shape
        tall = clip.as_subclass(Tensor).transpose(0, 1).reshape(channels, frames * height, width)
        found = kernel(tall, *args, **options).view(channels, frames, height, width).transpose(0, 1)
        return found.as_subclass(_Clip)

    return of_clip


for _functional in (functional.adjust_contrast, functional.autocontrast, functional.equalize):
    _of_image = getattr(functional, f"{_functional.__name__}_image")
    functional.register_kernel(_functional, _Clip)(_over_all_frames(_of_image))
