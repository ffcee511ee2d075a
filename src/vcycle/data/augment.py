"""Augmentation of clips with torchvision's transforms, consistent over the frames of a clip.

For the ``transform`` of a ``VideoDataset``. All random draws come from torch's global generator, which the dataset
seeds per request. So neither the number of workers nor a resume changes them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from vcycle.utils.extras import require

tv_tensors = require("torchvision.tv_tensors", "augment needs")
v2 = require("torchvision.transforms.v2", "augment needs")
functional = v2.functional

__all__ = ["ClipAugment", "ClipErasing", "ClipJitter", "chained"]

ClipTransform = Callable[[Tensor], Tensor]
"""Maps a clip, uint8 ``(T, H, W, 3)``, to another. The input is not modified."""


def chained(transforms: Sequence[ClipTransform]) -> ClipTransform | None:
    """Return transforms as one, in order; None if there are none."""
    if len(transforms) < 2:
        return transforms[0] if transforms else None
    chain: ClipTransform = v2.Compose(transforms)
    return chain


class ClipAugment:
    """RandAugment of a clip (Cubuk et al. 2020): the same operations at the same strength in every frame.

    Contrast, auto-contrast and equalise use the value range of the whole clip, so that a still background does not
    flicker when something else moves.
    """

    def __init__(
        self,
        *,
        ops: int = 2,
        magnitude: int = 9,
        fill: Sequence[float] = (0.45, 0.45, 0.45),
        strength: Callable[[int], float] | None = None,
    ) -> None:
        """Configure RandAugment.

        Args:
            ops: Number of operations per clip.
            magnitude: Strength of each operation, 0 to 30.
            fill: RGB color of pixels that a geometric operation leaves empty, in 0..1.
            strength: The share of the magnitude, 0 to 1, by the clip's short side in pixels; always 1 by default.
        """
        color = [round(255 * value) for value in fill]
        self._magnitude, self._strength = magnitude, strength
        self._transform = v2.RandAugment(ops, magnitude, interpolation=v2.InterpolationMode.BILINEAR, fill=color)

    def __call__(self, clip: Tensor) -> Tensor:
        """Return the augmented clip, uint8 ``(T, H, W, 3)``. The input is not modified."""
        if self._strength is not None:
            self._transform.magnitude = round(self._magnitude * self._strength(min(clip.shape[1:3])))
        return _transformed(self._transform, clip)


class ClipJitter:
    """Color jitter of a clip: the same brightness, contrast, saturation and hue in every frame.

    The contrast changes around the mean of the whole clip.
    """

    def __init__(
        self,
        *,
        brightness: float = 0.4,
        contrast: float = 0.4,
        saturation: float = 0.4,
        hue: float = 0.0,
        strength: Callable[[int], float] | None = None,
    ) -> None:
        """Configure the jitter.

        Args:
            brightness: The factor is uniform in [1 - brightness, 1 + brightness], at least 0.
            contrast: The same for the contrast.
            saturation: The same for the saturation.
            hue: The hue's shift is uniform in [-hue, hue], as a share of the color circle; at most 0.5.
            strength: The share of all four, 0 to 1, by the clip's short side in pixels; always 1 by default.
        """
        self._amounts = brightness, contrast, saturation, hue
        self._strength = strength

    def __call__(self, clip: Tensor) -> Tensor:
        """Return the jittered clip, uint8 ``(T, H, W, 3)``. The input is not modified."""
        share = 1.0 if self._strength is None else self._strength(min(clip.shape[1:3]))
        return _transformed(v2.ColorJitter(*(share * amount for amount in self._amounts)), clip)


class ClipErasing:
    """Random erasing of a clip (Zhong et al. 2020): one rectangle through all of its frames."""

    def __init__(
        self,
        *,
        probability: float = 0.25,
        area: tuple[float, float] = (0.02, 0.333),
        ratio: tuple[float, float] = (0.3, 3.33),
        fill: Literal["noise", "mean"] = "noise",
        mean: Sequence[float] = (0.45, 0.45, 0.45),
        std: Sequence[float] = (0.225, 0.225, 0.225),
        strength: Callable[[int], float] | None = None,
    ) -> None:
        """Configure the erasing.

        Args:
            probability: The share of clips that are erased.
            area: Range of the rectangle's area, as a share of the frame's.
            ratio: Range of its height, in widths.
            fill: Normal noise per pixel and frame, with the mean and deviation below, or the mean alone. After
                normalisation this is standard normal noise, cut off at black and white, or zero.
            mean: Mean per channel, for values in 0..1.
            std: Standard deviation per channel.
            strength: The share of the probability, 0 to 1, by the clip's short side in pixels; always 1 by default.
        """
        self._probability, self._strength = probability, strength
        color = [round(255 * value) for value in mean]
        if fill == "mean":
            self._transform = v2.RandomErasing(probability, area, ratio, value=color)
        else:
            self._transform = _NoiseErasing(probability, area, ratio, mean, std)

    def __call__(self, clip: Tensor) -> Tensor:
        """Return the clip, uint8 ``(T, H, W, 3)``, with or without a rectangle. The input is not modified."""
        if self._strength is not None:
            self._transform.p = self._probability * self._strength(min(clip.shape[1:3]))
        return _transformed(self._transform, clip)


class _NoiseErasing(v2.RandomErasing):  # type: ignore[misc, name-defined]
    """Fills the rectangle with noise that differs between frames; torchvision's is the same in all of them."""

    def __init__(
        self,
        probability: float,
        area: tuple[float, float],
        ratio: tuple[float, float],
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__(probability, area, ratio)
        self._mean, self._std = (255 * torch.tensor(values)[:, None, None] for values in (mean, std))

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a rectangle and its pixels."""
        drawn: dict[str, Any] = super().make_params(flat_inputs)
        if drawn["v"] is not None:  # else no rectangle fits
            frames, channels = flat_inputs[0].shape[:2]
            noise = torch.randn(frames, channels, drawn["h"], drawn["w"])
            drawn["v"] = noise.mul_(self._std).add_(self._mean).round_().clamp_(0, 255)
        return drawn


class _Clip(tv_tensors.Video):  # type: ignore[misc, name-defined]
    """Frames ``(T, C, H, W)`` of one clip. Operations that depend on the value range treat them as one picture."""


def _over_all_frames(kernel: Callable[..., Tensor]) -> Callable[..., _Clip]:
    """Apply a picture operation to all frames of a clip at once, stacked vertically."""

    def of_clip(clip: Any, *args: Any, **options: Any) -> _Clip:
        frames, channels, height, width = clip.shape
        tall = clip.as_subclass(Tensor).transpose(0, 1).reshape(channels, frames * height, width)
        found = kernel(tall, *args, **options).view(channels, frames, height, width).transpose(0, 1)
        return found.as_subclass(_Clip)

    return of_clip


def _transformed(transform: Callable[[Tensor], Any], clip: Tensor) -> Tensor:
    """Apply a transform of torchvision to a clip, uint8 ``(T, H, W, 3)``, as one picture."""
    plain: Tensor = transform(clip.permute(0, 3, 1, 2).as_subclass(_Clip)).as_subclass(Tensor)
    return plain.permute(0, 2, 3, 1)


for _functional in (functional.adjust_contrast, functional.autocontrast, functional.equalize):
    _of_image = getattr(functional, f"{_functional.__name__}_image")
    functional.register_kernel(_functional, _Clip)(_over_all_frames(_of_image))
