"""Orientation of a picture: how a player rotates and mirrors a decoded frame."""

from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from av.sidedata.sidedata import Type
from numpy.typing import NDArray

from vcycle.data.video.container import VideoFrame

__all__ = ["UPRIGHT", "Orientation"]

_Pixel = TypeVar("_Pixel", bound=np.generic)


class Orientation(NamedTuple):
    """One of the eight symmetries of a rectangle, from the coded to the displayed picture.

    The picture is transposed first, then flipped.

    Example:
        >>> Orientation.from_matrix([[0, 1], [-1, 0]])  # clockwise, as a phone held upright records
        Orientation(transposed=True, upside_down=False, mirrored=True)
        >>> Orientation(transposed=True).apply(np.zeros((2, 4, 3))).shape
        (4, 2, 3)
    """

    transposed: bool = False
    """Rows become columns."""

    upside_down: bool = False
    """Top and bottom are swapped."""

    mirrored: bool = False
    """Left and right are swapped."""

    @classmethod
    def of(cls, frame: VideoFrame) -> "Orientation":
        """Return the orientation in a decoded frame's display matrix; upright without one."""
        matrix = cast("Any", frame.side_data).get(Type.DISPLAYMATRIX)
        if matrix is None:
            return UPRIGHT
        # Three rows of a, b, u; c, d, v; x, y, w: (column, row) is shown at (a·column + c·row, b·column + d·row).
        return cls.from_matrix(np.frombuffer(bytes(matrix), dtype=np.int32)[:9].reshape(3, 3)[:2, :2].tolist())

    @classmethod
    def from_matrix(cls, matrix: list[list[int]]) -> "Orientation":
        """Return the symmetry nearest to a matrix [[a, b], [c, d]], as in ISO 14496-12, section 6.2.2."""
        (a, b), (c, d) = matrix
        if abs(a) + abs(d) >= abs(b) + abs(c):
            return cls(transposed=False, upside_down=d < 0, mirrored=a < 0)
        return cls(transposed=True, upside_down=b < 0, mirrored=c < 0)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Convert the coded to the displayed height and width, or the reverse."""
        return (width, height) if self.transposed else (height, width)

    def apply(self, pixels: NDArray[_Pixel]) -> NDArray[_Pixel]:
        """Return a picture ``(H, W, ...)`` as displayed; a view."""
        if self.transposed:
            pixels = pixels.swapaxes(0, 1)
        return pixels[:: -1 if self.upside_down else 1, :: -1 if self.mirrored else 1]


UPRIGHT = Orientation()
