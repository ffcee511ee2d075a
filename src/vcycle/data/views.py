"""The views that an evaluation takes of a video: clips spread over its time, crops over its picture."""

from __future__ import annotations

from dataclasses import dataclass

from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = ["Views"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """K clips of J crops each, of every video alike.

    Each clip takes frames over a span of the video. One clip is the middle. More are spread evenly, so that the span
    of the first starts with the video and that of the last ends with it: no frame at an end is out of reach. One crop
    is the center of the resized picture. More are spread evenly along its longer side, from edge to edge.

    Example:
        >>> print(Views(shape=Shape(32, 256, 256), clips=10, crops=3))
        10 clips × 3 crops, 32×256×256
    """

    shape: Shape
    """Of each clip."""

    clips: int = 1
    """Clips of a video, K."""

    crops: int = 1
    """Crops of a clip, J."""

    short_side: float | None = None
    """Short side of the resized picture in pixels; by default the least that training at this size would take."""

    def __post_init__(self) -> None:
        """Refuse views that are none."""
        if self.clips < 1 or self.crops < 1:
            raise DataError(f"clips={self.clips}, crops={self.crops}: both must be at least 1")
        least = min(self.shape.height, self.shape.width)
        if self.short_side is not None and self.short_side < least:
            raise DataError(f"short_side={self.short_side:g}: crops of {least} pixels need {least} or more")

    def __len__(self) -> int:
        """Views of a video."""
        return self.clips * self.crops

    def __str__(self) -> str:
        """The views in words."""
        if len(self) == 1:
            taken = "1 center clip"
        elif self.crops == 1:
            taken = f"{self.clips} clips"
        else:
            taken = f"{self.clips} clip{'s' * (self.clips > 1)} × {self.crops} crops"
        resized = "" if self.short_side is None else f" of short side {self.short_side:g}"
        return f"{taken}, {self.shape}{resized}"

    def start(self, clip: int) -> float:
        """Where a clip starts, from 0, as early as can be, to 1, as late as its span leaves room for."""
        return clip / (self.clips - 1) if self.clips > 1 else 0.5

    def crop_at(self, crop: int, room: int) -> int:
        """Where a crop lies along the longer side, in pixels of the ``room`` that crops leave."""
        place = crop / (self.crops - 1) if self.crops > 1 else 0.5
        return min(int((room + 1) * place), room)
