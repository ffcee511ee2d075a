"""Settings of a preparation."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from vcycle.data.prepare.names import array_file, level_folder
from vcycle.errors import DataError

__all__ = ["MARGIN", "Form", "PrepareSettings", "short_side_for"]

Form = Literal["video", "array"]

MARGIN = 1.15
"""Default short side, as a multiple of the largest crop: leaves room for random crops and scales."""

_LARGEST = 16384


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """Settings of a preparation; a folder holds the output of one of them."""

    to: Form = "video"
    """Short H.264 files, or an array of all decoded frames."""

    levels: tuple[int, ...]
    """Short sides in pixels, ascending. Smaller videos keep their size."""

    group: int = 12
    """Key frame interval in frames."""

    crf: int = 20
    """x264 CRF: lower is better quality and larger files."""

    def __post_init__(self) -> None:
        """Validate the settings."""
        if self.to not in get_args(Form):
            raise DataError(f"to={self.to!r}: {' or '.join(get_args(Form))} is accepted")
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise DataError(f"short sides {list(self.levels)}: must be pixels, ascending")
        if not 1 <= self.levels[0] <= self.levels[-1] <= _LARGEST:
            raise DataError(f"short sides {list(self.levels)}: must be from 1 to {_LARGEST:,} pixels")
        if self.to == "video" and any(side % 2 for side in self.levels):
            raise DataError(f"short sides {list(self.levels)}: must be even for videos")

    @property
    def suffix(self) -> str:
        """File name suffix of a video in the prepared folder."""
        return ".mp4" if self.to == "video" else ""

    def file(self, side: int, name: str) -> str:
        """Return where a file is stored in a level, relative to the prepared folder.

        This is its own video file, or its split's array.

        Example:
            >>> PrepareSettings(levels=(128,)).file(128, "train/run/1")
            '128px/train/run/1.mp4'
        """
        if self.to == "array":
            return array_file(side, name.partition("/")[0])
        return f"{level_folder(side)}/{name}{self.suffix}"

    def stored(self, height: int, width: int) -> list[tuple[int, int] | None]:
        """Return the stored size of a video at each level; None if the level below is as large.

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
        """Convert to JSON data."""
        return asdict(self) | {"levels": list(self.levels)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PrepareSettings":
        """Create from the data of ``to_json``."""
        return cls(**{**data, "levels": tuple(data["levels"])})


def _rounded(pixels: int, scale: float, step: int) -> int:
    """Scale a length to a multiple of ``step``, never above the original (except for a single pixel)."""
    return max(step, min(step * round(pixels * scale / step), pixels // step * step))


def short_side_for(crop: int) -> int:
    """Return the short side that leaves room around a plan's largest crop.

    Example:
        >>> short_side_for(224)
        258
    """
    return 2 * math.ceil(MARGIN * crop / 2)
