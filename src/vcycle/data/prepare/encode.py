"""Writes one video as short H.264 files: the worker side of ``--to video``."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np
from av.video.stream import VideoStream

from vcycle.data.engines.jobs import OutputError
from vcycle.data.locations import location
from vcycle.data.prepare.decoding import Whole, appearance_in, open_whole, to_rgb
from vcycle.data.prepare.records import Record, Stored, checksum, run_lengths
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.video import VideoError, every_frame, probe
from vcycle.data.video.colors import BT709, Appearance, name_colors, to_yuv
from vcycle.data.video.scaling import Scaler
from vcycle.utils.atomic import PARTIAL, atomic_path, too_long

__all__ = ["EncodeTask", "encode_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeTask:
    """A video and its output files."""

    source: str
    frame_rate: float | None
    """Frame rate, for a folder of pictures."""

    targets: tuple[str, ...]
    """Output file for each level."""

    settings: PrepareSettings
    limit: int | None = None
    """Stop after this many frames: a sample, to estimate the time."""


def encode_file(task: EncodeTask, tell: Callable[[float], None]) -> Record:
    """Write a video at every level, verify the output, and only then rename it into place.

    Raises:
        VideoError: If the source cannot be read, or the output fails verification.
        OutputError: If the disk is full.
    """
    _check_names(task)
    whole = open_whole(task.source, task.frame_rate, tell)
    appearance = appearance_in(task.source, task.frame_rate)
    sizes = task.settings.stored(whole.info.height, whole.info.width)
    count = min(whole.info.frames, task.limit or whole.info.frames)
    with ExitStack() as files:
        partials = [
            str(files.enter_context(_placed(target))) if size else None
            for target, size in zip(task.targets, sizes, strict=True)
        ]
        writers = [
            _Writer(partial, size, whole, appearance, task.settings) if partial and size else None
            for partial, size in zip(partials, sizes, strict=True)
        ]
        filled = np.zeros(count, dtype=np.bool_)
        try:
            for number, (frame, missing) in enumerate(whole.frames):
                if number == count:
                    break
                filled[number] = missing
                for writer in writers:
                    if writer is not None:
                        writer.put(frame, int(whole.pts[number]))
                tell((number + 1) / count)
        finally:
            ticks = [writer.close() for writer in writers if writer is not None]
        stored = [
            None if partial is None or size is None else _verified(partial, task.source, size, whole, count, task)
            for partial, size in zip(partials, sizes, strict=True)
        ]
        pts, tolerance = next(item[1:] for item in stored if item is not None)
    return Record(
        frames=count,
        whole=whole.info.frames,
        displayed=(whole.info.height, whole.info.width),
        duration=whole.info.duration,
        tolerance=tolerance,
        tick=ticks[0],
        pts=run_lengths(np.diff(pts)),
        filled=[[int(n), 1] for n in np.flatnonzero(filled)],
        levels=[None if item is None else item[0] for item in stored],
        incomplete=whole.info.incomplete,
    )


@contextmanager
def _placed(target: str) -> Iterator[Path]:
    """Yield where to write a file, which is moved or uploaded to its place after the block.

    Raises:
        OutputError: If it cannot be uploaded.
    """
    place = location(target)
    if isinstance(place, Path):
        with atomic_path(place, durable=False) as partial:  # the writer syncs
            yield partial
        return
    with TemporaryDirectory(prefix="vcycle-") as folder:
        file = Path(folder) / place.name
        yield file
        try:
            place.upload(file)
        except OSError as error:
            raise OutputError(f"{target}: {error.strerror or error}") from error


def _check_names(task: EncodeTask) -> None:
    """Refuse a source whose output name is too long, before decoding it."""
    for target in task.targets:
        if (why := too_long(target)) is not None:
            raise VideoError(task.source, why)


class _Output(io.FileIO):
    """A file that remembers why it could not be written: the muxer reports only that it could not."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


class _Writer:
    """Encodes one file."""

    def __init__(
        self, path: str, size: tuple[int, int], whole: Whole, appearance: Appearance, settings: PrepareSettings
    ) -> None:
        self._size = size
        self._orientation = whole.orientation
        self._clock = whole.clock
        self._scale = Scaler()
        self.path = path
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = _Output(path, "w")
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror}") from error
        self._container = av.open(self._file, "w", format="mp4")
        rate = Fraction(min(max(whole.info.fps, 1), 240)).limit_denominator(1001)
        group = str(settings.group)
        # Frames refer only to earlier frames of their group (closed GOPs, no B-frames).
        options = {"preset": "veryfast", "tune": "fastdecode", "crf": str(settings.crf), "bf": "0"}
        options |= {"g": group, "keyint_min": group, "sc_threshold": "0"}
        # With mbtree, x264 is not deterministic: about one run in sixty gives different bytes.
        options |= {"mbtree": "0", "rc-lookahead": "0"}
        self._stream: VideoStream = self._container.add_stream("libx264", rate=rate, options=options)
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = "yuv420p"
        context = self._stream.codec_context
        context.thread_count = 1  # for the same bytes on any machine
        context.time_base = whole.clock
        # The matrix is always BT.709; the rest is the source's, such as an HDR transfer.
        self._colors = appearance.colors._replace(matrix=BT709.matrix)
        name_colors(context, self._colors, appearance.pixel_aspect)

    def put(self, frame: av.VideoFrame, pts: int) -> None:
        picture = to_yuv(to_rgb(frame, self._orientation, self._size, self._scale), self._colors)
        picture.pict_type = 0  # not the source's
        picture.pts, picture.time_base = pts, self._clock
        self._mux(picture)

    def close(self) -> float:
        """Finish the file, synced to disk; return its seconds per tick."""
        try:
            self._mux(None)
            tick = float(self._stream.time_base or 0)
            self._container.close()
            os.fsync(self._file.fileno())
        except (av.error.FFmpegError, OSError) as error:
            raise self._fault(error) from error
        finally:
            self._file.close()
        return tick

    def _mux(self, picture: av.VideoFrame | None) -> None:
        try:
            self._container.mux(self._stream.encode(picture))
        except (av.error.FFmpegError, OSError) as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> Exception:
        if self._file.failure is not None:
            return OutputError(f"{self.path.removesuffix(PARTIAL)}: {self._file.failure.strerror}")
        return VideoError(self.path, f"cannot be encoded: {error}")


def _verified(
    partial: str, source: str, size: tuple[int, int], whole: Whole, count: int, task: EncodeTask
) -> tuple[Stored, Any, float]:
    """Read the output as a loader would, verify it, and return its stamps and their tolerance."""
    index = probe(partial)
    keyframes = np.flatnonzero(index.keyframe)
    wanted = whole.info.times[:count] - whole.info.times[0]
    faults = {
        "its time stamps differ from the frames'": index.sequential
        or index.info.frames != count
        or bool((np.diff(index.pts) <= 0).any())
        or not np.allclose(index.info.times, wanted, rtol=1e-9, atol=max(whole.info.tolerance, 1e-4)),
        "its picture size is wrong": (index.info.height, index.info.width) != size,
        "its key frames are misplaced": not np.array_equal(keyframes, np.arange(0, count, task.settings.group)),
    }
    found = next((fault for fault, is_so in faults.items() if is_so), None)
    if found is None and any(missing for _, missing in every_frame(index)):
        found = "some of its frames cannot be decoded"
    if found is not None:
        raise VideoError(source, f"the encoded output failed verification: {found}")
    stored = Stored(size=size, bytes=os.path.getsize(partial), checksum=checksum(partial))
    return stored, index.pts, index.info.tolerance
