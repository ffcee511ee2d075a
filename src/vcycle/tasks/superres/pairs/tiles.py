"""Stores frames in square tiles, one file per clip, so that a random crop reads little more than its own bytes.

A file holds a clip's high-resolution frames, then (where there are any) its low-resolution ones. Frames are cut
into tiles of 64 × 64 pixels; a tile's pixels of *all* frames are contiguous::

    tile (0, 0): frame 0, frame 1, … | tile (0, 1): frame 0, … | … | tile (1, 0): …

so that a crop of consecutive frames is one contiguous read per tile that it touches. Tiles at the right and lower
edge are smaller. Files are read by position and closed again: nothing is kept open, no two readers share a state,
and a file that was cut short is an error rather than a signal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcycle.data.source import Box
from vcycle.tasks.superres.pairs.clips import ClipInfo

__all__ = ["TILE", "Tile", "TileGrid"]

TILE = 64


class Tile(NamedTuple):
    """One tile, cut to a box."""

    start: int
    """Byte of its first frame, from the start of the grid."""

    height: int
    width: int

    inside: tuple[slice, slice]
    """Rows and columns of the tile inside the box."""

    outside: tuple[slice, slice]
    """Rows and columns of the box that the tile fills."""

    @property
    def bytes_per_frame(self) -> int:
        """Bytes of one frame of the tile."""
        return self.height * self.width * 3


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Byte offsets of a clip's pixels."""

    info: ClipInfo
    start: int
    """Byte of the file at which the grid begins."""

    @property
    def stop(self) -> int:
        """Byte of the file at which the grid ends."""
        return self.start + self.info.frames * self.info.height * self.info.width * 3

    def tiles(self, box: Box) -> Iterator[Tile]:
        """The tiles that a box touches, in file order."""
        top, left, height, width = box
        frames = self.info.frames
        for above in range(top // TILE * TILE, top + height, TILE):
            tall = min(TILE, self.info.height - above)
            rows = _overlap(above, tall, top, height)
            for before in range(left // TILE * TILE, left + width, TILE):
                wide = min(TILE, self.info.width - before)
                columns = _overlap(before, wide, left, width)
                start = self.start + frames * 3 * (above * self.info.width + tall * before)
                yield Tile(start, tall, wide, (rows[0], columns[0]), (rows[1], columns[1]))

    def read(self, file: int, frames: Sequence[int], box: Box) -> NDArray[np.uint8]:
        """Frames by number, ``(T, h, w, 3)``, from an open file.

        Raises:
            OSError: If the file cannot be read, or ends too early.
        """
        pixels = np.empty((len(frames), *box[2:], 3), dtype=np.uint8)
        runs = list(_runs(frames))
        for tile in self.tiles(box):
            for place, first, count in runs:
                part = np.empty((count, tile.height, tile.width, 3), dtype=np.uint8)
                if os.preadv(file, [part.data], tile.start + first * tile.bytes_per_frame) != part.nbytes:
                    raise OSError("the file ends too early")
                pixels[place : place + count, tile.outside[0], tile.outside[1]] = part[
                    :, tile.inside[0], tile.inside[1]
                ]
        return pixels

    def write(self, file: int, first: int, pixels: NDArray[np.uint8]) -> None:
        """Write whole frames ``(T, H, W, 3)`` from frame ``first`` on into an open file.

        Raises:
            OSError: If the disk is full or fails.
        """
        for tile in self.tiles((0, 0, self.info.height, self.info.width)):
            part = np.ascontiguousarray(pixels[:, tile.outside[0], tile.outside[1]])
            at = tile.start + first * tile.bytes_per_frame
            if os.pwritev(file, [part.data], at) != part.nbytes:
                raise OSError("the disk took only a part of the data")


def _overlap(start: int, length: int, first: int, count: int) -> tuple[slice, slice]:
    """Where ``[start, start + length)`` and ``[first, first + count)`` meet, counted from each one's own start."""
    low, high = max(start, first), min(start + length, first + count)
    return slice(low - start, high - start), slice(low - first, high - first)


def _runs(frames: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of consecutive frames: place of the first in the list, its number, how many."""
    begin = 0
    for place in range(1, len(frames) + 1):
        if place == len(frames) or frames[place] != frames[place - 1] + 1:
            yield begin, int(frames[begin]), place - begin
            begin = place
