"""Evaluation views of a video: clips spread over time, crops spread over the picture."""

from dataclasses import dataclass

from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = ["Views"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """K clips of J crops each, the same for every video.

    One clip is the temporal center. Several are spread evenly, from the start of the video to its end, so that every
    frame at either end is covered. One crop is the center of the resized picture. Several are spread evenly along its
    longer side, from edge to edge.

    Example:
        >>> print(Views(shape=Shape(32, 256, 256), clips=10, crops=3))
        10 clips × 3 crops, 32×256×256
    """

    shape: Shape
    """Shape of each clip."""

    clips: int = 1
    """Clips per video, K."""

    crops: int = 1
    """Crops per clip, J."""

    short_side: float | None = None
    """Short side of the resized picture in pixels; by default the smallest that training at this size uses."""

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.clips < 1 or self.crops < 1:
            raise DataError(f"clips={self.clips}, crops={self.crops}: both must be at least 1")
        least = min(self.shape.height, self.shape.width)
        if self.short_side is not None and self.short_side < least:
            raise DataError(f"short_side={self.short_side:g}: crops of {least} pixels need {least} or more")

    def __len__(self) -> int:
        """Return the number of views per video."""
        return self.clips * self.crops

    def __str__(self) -> str:
        """Describe the views."""
        if len(self) == 1:
            taken = "1 center clip"
        elif self.crops == 1:
            taken = f"{self.clips} clips"
        else:
            taken = f"{self.clips} clip{'s' * (self.clips > 1)} × {self.crops} crops"
        resized = "" if self.short_side is None else f" of short side {self.short_side:g}"
        return f"{taken}, {self.shape}{resized}"

    def start(self, clip: int) -> float:
        """Return the start of a clip, from 0 (earliest) to 1 (latest that its span allows)."""
        return clip / (self.clips - 1) if self.clips > 1 else 0.5

    def crop_at(self, crop: int, room: int) -> int:
        """Return the position of a crop along the longer side, in pixels of the free ``room``."""
        place = crop / (self.crops - 1) if self.crops > 1 else 0.5
        return min(int((room + 1) * place), room)
