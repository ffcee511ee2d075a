"""A video written frame by frame, with the time stamps and the sound of another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.video.reformatter import Colorspace
from av.video.stream import VideoStream
from numpy.typing import NDArray

from vcycle.data.video.container import Packet, VideoError
from vcycle.data.whole import partial_of
from vcycle.errors import DataError

__all__ = ["FORMATS", "VideoWriter", "written_video"]

FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""Endings of files that can be written, and their formats."""


_BT709 = 1


class VideoWriter:
    """A file being written; see ``written_video``."""

    def __init__(self, container: OutputContainer, stream: VideoStream, clock: Fraction, sound: _Sound | None) -> None:
        self._container, self._stream, self._clock, self._sound = container, stream, clock, sound

    def put(self, frame: NDArray[np.uint8], pts: int) -> None:
        """Add a frame, uint8 ``(H, W, 3)``, RGB, shown from a tick of the clock on.

        Raises:
            DataError: if it cannot be written.
        """
        picture = av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(
            format="yuv420p", dst_colorspace=Colorspace.ITU709, threads=1
        )
        picture.pts, picture.time_base = pts, self._clock
        self._container.mux(self._stream.encode(picture))
        if self._sound is not None:
            self._sound.copy_until(float(pts * self._clock))

    def end(self) -> None:
        """Add what is left."""
        self._container.mux(self._stream.encode(None))
        if self._sound is not None:
            self._sound.copy_until(float("inf"))


class _Sound:
    """The sound of a file, copied as it was coded."""

    def __init__(self, source: InputContainer, container: OutputContainer, begin: float) -> None:
        self._stream: AudioStream = source.streams.audio[0]
        self._into: Any = container.add_stream_from_template(self._stream)
        self._container = container
        self._packets = source.demux(self._stream)
        self._tick = float(self._stream.time_base or 1)
        self._shift = round(begin / self._tick)  # pictures begin at 0, the sound with them
        self._next: Packet[AudioStream] | None = None

    def copy_until(self, seconds: float) -> None:
        """Copy what comes before a time: the file's two streams go side by side."""
        while True:
            packet = self._next or next(self._packets, None)
            self._next = None
            if packet is None:
                return
            if packet.dts is None:  # the end of the stream
                continue
            if (packet.dts - self._shift) * self._tick > seconds:
                self._next = packet
                return
            if packet.dts < self._shift:
                continue
            packet.dts -= self._shift
            packet.pts = None if packet.pts is None else packet.pts - self._shift
            packet.stream = self._into
            self._container.mux(packet)


@contextmanager
def written_video(
    path: Path,
    *,
    size: tuple[int, int],
    clock: Fraction,
    rate: float,
    sound_of: str | None = None,
    begin: float = 0.0,
    crf: int = 17,
) -> Iterator[VideoWriter]:
    """A file to put frames into, which takes its name once it is whole and on the disk; after an exception it is gone.

    Args:
        path: Where; one of ``FORMATS`` by its ending.
        size: Height and width in pixels, both even.
        clock: Seconds in a tick of the frames' time stamps.
        rate: Frames a second, as the file says.
        sound_of: A file whose sound is copied, if it has any that fits into the format.
        begin: Time of its first frame in seconds, which is at 0 here.
        crf: Quality of the H.264: 0 is lossless, 17 looks like it.

    Raises:
        DataError: if the ending is of no format, or it cannot be written.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"{path}: a video cannot be written as {path.suffix or 'a file without an ending'!r}; "
            f"accepted: {', '.join(FORMATS)}"
        )
    partial = partial_of(path)
    try:
        with ExitStack() as stack:
            container = stack.enter_context(av.open(str(partial), "w", format=kind))
            frames_a_second = Fraction(min(max(rate, 1), 1000)).limit_denominator(1001)
            options = {"preset": "medium", "crf": str(crf)}
            stream = container.add_stream("libx264", rate=frames_a_second, options=options)
            stream.height, stream.width = size
            stream.pix_fmt = "yuv420p"
            context = stream.codec_context
            context.time_base = clock
            # Said, as players guess by the size of the picture otherwise.
            context.colorspace = context.color_primaries = context.color_trc = _BT709
            sound = None if sound_of is None else _sound(stack, sound_of, container, begin)
            writer = VideoWriter(container, stream, clock, sound)
            yield writer
            writer.end()
        with partial.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(partial, path)
    except (av.error.FFmpegError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _sound(stack: ExitStack, path: str, container: OutputContainer, begin: float) -> _Sound | None:
    try:
        source = stack.enter_context(av.open(path))
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(path, str(error)) from error
    return _Sound(source, container, begin) if source.streams.audio else None
