"""Writes one video to its place in an array of all frames: the worker side of ``--to array``."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcycle.data.engines.jobs import OutputError
from vcycle.data.prepare.decoding import open_whole, to_rgb
from vcycle.data.prepare.records import Record, Stored, checksum, new_digest, run_lengths
from vcycle.data.video import VideoError
from vcycle.data.video.scaling import Scaler

__all__ = ["CopyTask", "MeasureTask", "Place", "copy_file", "measure_file", "reserve", "wipe"]

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask:
    """A video to measure: its length and frame size."""

    source: str
    frame_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a video in an array."""

    file: str
    offset: int
    size: tuple[int, int]
    """Height and width of a frame; frames are contiguous, ``(frames, height, width, 3)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """A video and its place in each level; None if the level below is as large."""

    source: str
    frame_rate: float | None
    frames: int
    places: tuple[Place | None, ...]
    limit: int | None = None
    """Stop after this many frames: a sample, to estimate the time."""


def measure_file(task: MeasureTask, tell: Callable[[float], None]) -> tuple[int, int, int]:
    """Return the frames, height and width of a video, from its packets."""
    info = open_whole(task.source, task.frame_rate, tell).info
    tell(1.0)
    return info.frames, info.height, info.width


def copy_file(task: CopyTask, tell: Callable[[float], None]) -> Record:
    """Decode a video to its place on disk, and compare it with what was written.

    Raises:
        VideoError: If the video cannot be read, or has changed since it was measured.
        OutputError: If the array cannot be written.
    """
    whole = open_whole(task.source, task.frame_rate, tell)
    if whole.info.frames != task.frames:
        raise VideoError(task.source, f"it had {task.frames} frames and now has {whole.info.frames}")
    count = min(task.frames, task.limit or task.frames)
    filled = np.zeros(count, dtype=np.bool_)
    writers = [None if place is None else _Writer(place) for place in task.places]
    try:
        for number, (frame, missing) in enumerate(whole.frames):
            if number == count:
                break
            filled[number] = missing
            for writer in writers:
                if writer is not None:
                    picture = to_rgb(frame, whole.orientation, writer.place.size, writer.scale)
                    writer.put(picture.to_ndarray().tobytes())
            tell((number + 1) / count)
    finally:
        stored = [None if writer is None else writer.close() for writer in writers]
    for writer, item in zip(writers, stored, strict=True):
        if writer and item and checksum(writer.place.file, item.offset, item.bytes) != item.checksum:
            raise VideoError(task.source, "the data on the disk differs from what was written")
    return Record(
        frames=count,
        whole=whole.info.frames,
        displayed=(whole.info.height, whole.info.width),
        duration=whole.info.duration,
        tolerance=whole.info.tolerance,
        tick=float(whole.clock),
        pts=run_lengths(np.diff(whole.pts[:count])),
        filled=[[int(n), 1] for n in np.flatnonzero(filled)],
        levels=stored,
        incomplete=whole.info.incomplete,
    )


class _Writer:
    """Writes to one place of a file."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.scale = Scaler()
        self._digest = new_digest()
        self._bytes = 0
        try:
            self._file = os.open(place.file, os.O_WRONLY)
        except OSError as error:
            raise self._fault(error) from error

    def put(self, data: bytes) -> None:
        self._digest.update(data)
        at = self.place.offset + self._bytes
        self._bytes += len(data)
        while data:
            try:
                written = os.pwrite(self._file, data, at)
            except OSError as error:
                raise self._fault(error) from error
            data, at = data[written:], at + written

    def close(self) -> Stored:
        """Sync to disk, and return what was written."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._fault(error) from error
        finally:
            os.close(self._file)
        return Stored(
            size=self.place.size, bytes=self._bytes, checksum=self._digest.hexdigest(), offset=self.place.offset
        )

    def _fault(self, error: OSError) -> OutputError:
        return OutputError(f"{self.place.file}: {error.strerror}")


def reserve(file: str, size: int) -> None:
    """Allocate a file's full size on disk: a full disk fails now, not halfway.

    Raises:
        OSError: If there is not enough space.
    """
    with open(file, "ab") as handle:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle.fileno(), 0, max(1, size))
        os.truncate(handle.fileno(), max(1, size))


def wipe(place: Place, frames: int) -> None:
    """Clear the place of a video that could not be written: it may hold a part of it.

    Raises:
        OSError: If the file cannot be written.
    """
    left = frames * place.size[0] * place.size[1] * 3
    with open(place.file, "r+b") as handle:
        handle.seek(place.offset)
        while left > 0:
            left -= handle.write(bytes(min(left, _BLOCK)))
