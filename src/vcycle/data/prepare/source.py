"""Frame source of a prepared dataset: opens a file only when a clip of it is requested."""

from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcycle.data.info import VideoInfo
from vcycle.data.prepare.index import PreparedIndex, load_index
from vcycle.data.recent import Recent
from vcycle.data.source import Box, Frames, Shown, part_shown, read_clip, resize
from vcycle.data.video import VideoError, VideoIndex
from vcycle.data.video.orientation import UPRIGHT
from vcycle.errors import DataError

__all__ = ["PreparedSource"]


class PreparedSource:
    """Reads clips from the smallest level that is large enough. Processes may share one."""

    def __init__(self, folder: Path | PreparedIndex, split: str, *, failed: bool = False) -> None:
        """Open a split.

        Args:
            folder: A prepared folder, or its index.
            split: ``train``, ``val`` or ``test``.
            failed: Whether items also count the videos that could not be prepared, which ``PreparedIndex.videos``
                leaves out.

        Raises:
            DataError: If the folder holds no prepared dataset, or is incomplete.
        """
        self.index = folder if isinstance(folder, PreparedIndex) else load_index(folder)
        if split not in self.index.splits:
            raise DataError(f"{self.index.folder}: no {split} split; it has {', '.join(self.index.splits)}")
        rows = self.index.rows(split)
        self.split = split
        self.rows = rows if failed else rows[rows >= 0]
        self._failures = list(self.index.failures.items())
        self._arrays: dict[int, NDArray[np.uint8]] = {}
        self._infos = Recent(self._info)
        if self.index.settings.to == "array":
            self._check_arrays()

    def info(self, item: int) -> VideoInfo:
        """Return the times and displayed size of a video, as in its source."""
        return self._infos(item)

    def level_for(self, item: int, resized: tuple[int, int]) -> int:
        """Return the level to read a picture size from: the smallest that is no smaller, or the largest."""
        if len(self.index.settings.levels) == 1:
            return 0
        row = self._row(item)
        has = np.flatnonzero(self.index.columns["bytes"][row])
        enough = (self.index.columns["size"][row, has] >= resized).all(axis=1)
        return int(has[np.argmax(enough)] if enough.any() else has[-1])

    def read(self, item: int, frames: NDArray[np.int64], **how: Unpack[Shown]) -> Frames:
        """Return frames by number, resized from their prepared size."""
        row, level = self._row(item), self.level_for(item, how["resized"])
        if self.index.settings.to == "array":
            read = Frames(_gathered(self._frames(row, level), frames, **how), 0)
        else:
            read = read_clip(self._video(item, level), frames, **how)
        # The two counts may overlap, so their sum is capped.
        return read._replace(filled=min(len(frames), read.filled + self.index.filled(row, frames)))

    def _info(self, item: int) -> VideoInfo:
        return self.index.info(self._row(item))

    def _row(self, item: int) -> int:
        row = int(self.rows[item])
        if row < 0:
            name, cause = self._failures[-1 - row]
            raise VideoError(name, cause)
        return row

    def _video(self, item: int, level: int) -> VideoIndex:
        """Return the packets of a file as they were written: no B-frames, regular key frames."""
        row, info = self._row(item), self.info(item)
        columns, pts = self.index.columns, self.index.stamps(row)
        height, width = columns["size"][row, level].tolist()
        return VideoIndex(
            path=str(self.index.file(row, level)),
            info=VideoInfo(
                times=info.times, duration=info.duration, height=height, width=width, tolerance=info.tolerance
            ),
            orientation=UPRIGHT,
            sequential=False,
            pts=pts,
            keyframe=np.arange(len(pts)) % self.index.settings.group == 0,
            droppable=np.zeros(len(pts), dtype=np.bool_),
            shown=np.arange(len(pts)),
            demuxer="mp4",
            size=int(columns["bytes"][row, level]),
        )

    def _frames(self, row: int, level: int) -> NDArray[np.uint8]:
        """Return the frames of one video, ``(frames, height, width, 3)``, memory-mapped."""
        if level not in self._arrays:
            self._arrays[level] = np.asarray(np.memmap(self.index.file(row, level), dtype=np.uint8, mode="r"))
        columns = self.index.columns
        first = int(columns["offset"][row, level])
        pixels = self._arrays[level][first : first + int(columns["bytes"][row, level])]
        return pixels.reshape(-1, *columns["size"][row, level].tolist(), 3)

    def _check_arrays(self) -> None:
        """Refuse an array that is shorter than the index says."""
        columns, rows = self.index.columns, self.rows[self.rows >= 0]
        for level in range(len(self.index.settings.levels)):
            ends = (columns["offset"] + columns["bytes"])[rows, level]
            if not len(ends) or not ends.max():
                continue
            file = self.index.file(int(rows[0]), level)
            try:
                size = file.stat().st_size
            except OSError as error:
                raise DataError(f"{file}: {error.strerror}") from error
            if size < ends.max():
                raise DataError(f"{file}: is truncated: has {size} of {ends.max()} bytes")

    def __getstate__(self) -> dict[str, object]:
        """Drop the memory mappings: another process maps the files itself."""
        return {**self.__dict__, "_arrays": {}}


def _gathered(
    stored: NDArray[np.uint8],
    frames: NDArray[np.int64],
    *,
    resized: tuple[int, int],
    crop: Box,
    antialias: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Return frames of a video, resized and cropped; copied straight to the output if the size is the same."""
    rows, columns = part_shown(stored.shape[1:3], resized, crop)
    part, size = stored[:, rows, columns], crop[2:]
    if out is not None and part.shape[1:3] == size:
        for place, frame in zip(out.numpy(), frames.tolist(), strict=True):
            place[:] = part[frame]
        return out
    return resize(torch.from_numpy(np.ascontiguousarray(part[frames])), size, antialias=antialias, out=out)
