"""Writes a video frame by frame, with the time stamps and the audio of another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.stream import Discard
from av.video.stream import VideoStream
from numpy.typing import NDArray

from vcycle.data.video.colors import PICTURES, Appearance, Colors, name_colors, to_yuv
from vcycle.data.video.container import Packet, open_input
from vcycle.data.video.index import probe
from vcycle.errors import DataError
from vcycle.utils.atomic import atomic_path
from vcycle.utils.reading import resolved

__all__ = ["FORMATS", "VideoWriter", "check_other", "check_suffix", "written_video"]

FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""Supported file suffixes and their formats."""


class VideoWriter:
    """A video file being written; see ``written_video``."""

    def __init__(
        self,
        container: OutputContainer,
        stream: VideoStream,
        clock: Fraction,
        colors: Colors,
        sound: _Sound | None,
    ) -> None:
        self._container, self._stream, self._clock, self._sound = container, stream, clock, sound
        self._colors = colors

    def put(self, frame: NDArray[np.uint8] | NDArray[np.uint16], pts: int) -> None:
        """Add a frame, uint8 or uint16 ``(H, W, 3)``, RGB, shown from a tick on.

        Raises:
            DataError: if the file cannot be written.
        """
        kind = "rgb24" if frame.dtype == np.uint8 else "rgb48le"
        picture = to_yuv(av.VideoFrame.from_ndarray(frame, format=kind), self._colors, _pixels_of(self._colors))
        picture.pts, picture.time_base = pts, self._clock
        self._container.mux(self._stream.encode(picture))
        if self._sound is not None:
            self._sound.copy_until(float(pts * self._clock))

    def end(self) -> None:
        """Flush the encoder and the audio."""
        self._container.mux(self._stream.encode(None))
        if self._sound is not None:
            self._sound.copy_until(float("inf"))


class _Sound:
    """The audio of a file, copied without re-encoding, up to its end or to where the file is broken."""

    def __init__(self, source: InputContainer, stream: AudioStream, container: OutputContainer, begin: float) -> None:
        self._into: Any = container.add_stream_from_template(stream)
        self._container = container
        self._packets = source.demux(stream)
        self._tick = float(stream.time_base or 1)
        self._shift = round(begin / self._tick)  # pictures start at 0, and the audio with them
        self._next: Packet[AudioStream] | None = None

    def copy_until(self, seconds: float) -> None:
        """Copy the audio before a time, so that the file's two streams are interleaved."""
        while True:
            packet = self._next or self._read()
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

    def _read(self) -> Packet[AudioStream] | None:
        try:
            return next(self._packets, None)
        except av.error.FFmpegError:
            return None


def _pixels_of(colors: Colors) -> str:
    return "yuv420p10le" if colors.is_hdr else "yuv420p"


def check_suffix(path: Path) -> str:
    """Return the format of a video file to write, by its suffix.

    Raises:
        DataError: if the suffix is not supported.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"{path}: a video cannot be written as {path.suffix or 'a file without a suffix'!r}; "
            f"accepted: {', '.join(FORMATS)}"
        )
    return kind


def check_other(out: Path, video: Path, shown: str) -> None:
    """Refuse to write a file over the video that it is made from; the message starts with `shown`, as `--out FILE`.

    Raises:
        DataError: if both are the same file.
    """
    if resolved(out) == resolved(video):
        raise DataError(f"{shown} is the video itself: choose another file")


@contextmanager
def written_video(
    path: Path,
    *,
    size: tuple[int, int],
    clock: Fraction,
    rate: float,
    appearance: Appearance = PICTURES,
    sound_of: str | None = None,
    crf: int = 17,
) -> Iterator[VideoWriter]:
    """Open a file to add frames to; it is renamed into place once complete and on disk, and deleted after an exception.

    Args:
        path: Output file; its suffix must be in ``FORMATS``.
        size: Height and width in pixels, both even.
        clock: Seconds per tick of the frames' time stamps.
        rate: Declared frame rate.
        appearance: Appearance of the source video; its colors and pixel aspect ratio are kept. HDR is written with 10
            bits.
        sound_of: A video whose audio is copied, if it has any, from its first frame on, which is at 0 here.
        crf: CRF of the H.264: 0 is lossless, 17 is visually lossless.

    Raises:
        DataError: if the suffix is not supported, the format cannot hold the audio, or the file cannot be written.
        VideoError: if the video whose audio is copied cannot be read.
    """
    kind = check_suffix(path)
    try:
        with atomic_path(path) as partial, ExitStack() as stack:
            # With an explicit protocol, no file name is parsed as an address.
            container = stack.enter_context(av.open(f"file:{partial}", "w", format=kind))
            frames_a_second = Fraction(min(max(rate, 1), 1000)).limit_denominator(1001)
            options = {"preset": "medium", "crf": str(crf)}
            stream = container.add_stream("libx264", rate=frames_a_second, options=options)
            stream.height, stream.width = size
            stream.pix_fmt = _pixels_of(appearance.colors)
            context = stream.codec_context
            context.time_base = clock
            name_colors(context, appearance.colors, appearance.pixel_aspect)
            sound = None if sound_of is None else _sound(stack, sound_of, container, path)
            yield (writer := VideoWriter(container, stream, clock, appearance.colors, sound))
            writer.end()
    except (av.error.FFmpegError, OSError) as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def _sound(stack: ExitStack, source: str, container: OutputContainer, path: Path) -> _Sound | None:
    """Open the audio that a player uses in a file, if any, with a stream for it in the output."""
    # Pictures and audio may both start at any time, as in a recording cut from a broadcast.
    begin = probe(source).start
    heard = stack.enter_context(open_input(source))
    if not heard.streams.audio:
        return None
    stream = cast("AudioStream", heard.streams.best("audio") or heard.streams.audio[0])
    for other in heard.streams:
        if other is not stream:
            other.discard = Discard.all  # not read from the disk
    try:
        sound = _Sound(heard, stream, container, begin)
        container.start_encoding()
    except (av.error.FFmpegError, ValueError) as error:
        raise DataError(
            f"{path}: {path.suffix} cannot hold the audio of {source} ({stream.codec_context.name}); "
            "use .mkv, which supports nearly all codecs"
        ) from error
    return sound
