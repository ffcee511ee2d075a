"""What a preparation writes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from vcycle.data.prepare.names import array_file, level_folder
from vcycle.errors import DataError

__all__ = ["MARGIN", "Form", "PrepareSettings", "short_side_for"]

Form = Literal["video", "array"]

MARGIN = 1.15
"""Short side of the default, in sides of the largest crop: room for random crops and scales."""

_LARGEST = 16384


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """What a preparation writes; a folder holds what one of them wrote."""

    to: Form = "video"
    """Short H.264 files, or every frame as it is in memory."""

    levels: tuple[int, ...]
    """Short sides in pixels, ascending. Smaller videos keep their size."""

    group: int = 12
    """Frames from one key frame of a file to the next."""

    crf: int = 20
    """Quality that x264 keeps: smaller is better and larger."""

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        if self.to not in get_args(Form):
            raise DataError(f"to={self.to!r}: {' or '.join(get_args(Form))} is accepted")
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise DataError(f"short sides {list(self.levels)}: pixels are accepted, ascending")
        if not 1 <= self.levels[0] <= self.levels[-1] <= _LARGEST:
            raise DataError(f"short sides {list(self.levels)}: from 1 to {_LARGEST:,} pixels are accepted")
        if self.to == "video" and any(side % 2 for side in self.levels):
            raise DataError(f"short sides {list(self.levels)}: those of videos must be even")

    @property
    def suffix(self) -> str:
        """Ending of a video's name in the prepared folder."""
        return ".mp4" if self.to == "video" else ""

    def file(self, side: int, name: str) -> str:
        """Where a file of some name (split and all) lies in a level, below the prepared folder.

        A video of its own, or its split's array.

        Example:
            >>> PrepareSettings(levels=(128,)).file(128, "train/run/1")
            '128px/train/run/1.mp4'
        """
        if self.to == "array":
            return array_file(side, name.partition("/")[0])
        return f"{level_folder(side)}/{name}{self.suffix}"

    def stored(self, height: int, width: int) -> list[tuple[int, int] | None]:
        """Size at which a video is stored in each level; none where the level below is as large.

        Example:
            >>> PrepareSettings(levels=(128, 256)).stored(256, 341)
            [(128, 170), (256, 340)]
            >>> PrepareSettings(levels=(128, 256)).stored(100, 130)
            [(100, 130), None]
        """
        step = 2 if self.to == "video" else 1
        sizes: list[tuple[int, int] | None] = []
        last: tuple[int, int] | None = None
        for side in self.levels:
            scale = min(1.0, side / min(height, width))
            size = _rounded(height, scale, step), _rounded(width, scale, step)
            sizes.append(None if size == last else size)
            last = size
        return sizes

    def to_json(self) -> dict[str, Any]:
        """As data."""
        return asdict(self) | {"levels": list(self.levels)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PrepareSettings:
        """From data that ``to_json`` gave."""
        return cls(**{**data, "levels": tuple(data["levels"])})


def _rounded(pixels: int, scale: float, step: int) -> int:
    """A length scaled to a multiple of ``step``, never more than it was (but for a single pixel)."""
    return max(step, min(step * round(pixels * scale / step), pixels // step * step))


def short_side_for(crop: int) -> int:
    """The short side that leaves room around a plan's largest crop.

    Example:
        >>> short_side_for(224)
        258
    """
    return 2 * math.ceil(MARGIN * crop / 2)
