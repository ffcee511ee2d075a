"""Frames of a video file, exactly and cheaply: a file is indexed once, then only what a clip needs decoded.

Frames are numbered in the order they are shown. Where a container stores presentation times, a frame is known
by its time and only the packets that the wanted frames depend on are fed to the decoder; where it does not
(AVI, MPEG transport and program streams, raw streams), frames are counted from the start.

The log level of FFmpeg is never set: with a callback installed, closing a file can wait for ever on the
interpreter lock. Each decoder runs one thread: clips are decoded in parallel, not frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.errors import DataError

try:
    import av
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Disposition
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream
except ImportError as error:  # a broken decoder is said once, at start, not once per video
    raise ImportError(f"PyAV, which decodes videos, cannot be imported ({error}): pip install av") from error

__all__ = ["Decoded", "Interpolation", "VideoError", "VideoIndex", "probe", "read_frames"]

Interpolation = Literal["BILINEAR", "AREA"]

_TIMELESS_CONTAINERS = frozenset({"avi", "mpegts", "mpeg"})  # their packets' times do not number the frames
_FALLBACK_FPS = 25.0


class VideoError(DataError):
    """A video that cannot be read: names its path and the cause."""

    def __init__(self, path: str, cause: str = "") -> None:
        """Say which file and why; a single argument is a whole message."""
        super().__init__(f"{path}: {cause}" if cause else path)
        self.path = path
        self.cause = cause


class Decoded(NamedTuple):
    """Frames as they were asked for."""

    pixels: NDArray[np.uint8]
    """``(T, H, W, 3)``, RGB."""

    filled: NDArray[np.bool_]
    """``(T,)``: frames that could not be decoded and show the one before instead."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoIndex:
    """What one pass over a file's packets tells. Arrays run over packets in decoding order."""

    path: str
    info: VideoInfo
    """Times and displayed size of the frames shown."""

    rotation: int
    """Quarter turns, counterclockwise, from the coded picture to the displayed one."""

    sequential: bool
    """Frames can only be told by counting them from the start."""

    pts: NDArray[np.int64]
    """Presentation times in ticks of the stream's clock (empty if sequential)."""

    keyframe: NDArray[np.bool_]
    droppable: NDArray[np.bool_]
    """No other frame refers to this one."""

    shown: NDArray[np.int64]
    """Packet of each frame shown, in the order shown (empty if sequential)."""

    def frame_at(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Numbers of the frames on display at given times; see ``VideoInfo.frame_at``."""
        return self.info.frame_at(seconds)


class _Row(NamedTuple):
    """One packet."""

    pts: int | None
    keyframe: bool
    droppable: bool
    shown: bool


@contextmanager
def _opened(path: str) -> Iterator[tuple[InputContainer, VideoStream]]:
    """A file and its video stream, ready to decode; whatever is wrong with the file is a ``VideoError``."""
    try:
        with av.open(path) as container:
            # Cover art of a music file is a video stream too, of one picture.
            pictures = Disposition.attached_pic
            chosen = next((s for s in container.streams.video if not s.disposition & pictures), None)
            if chosen is None:
                raise VideoError(path, "no video stream")
            if getattr(chosen, "codec_context", None) is None:
                raise VideoError(path, "no decoder for its codec")
            chosen.codec_context.thread_count = 1
            chosen.codec_context.thread_type = "SLICE"
            yield container, chosen
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(path, _cause(error)) from error


def _cause(error: Exception) -> str:
    """The reason alone, in one line, without the error number and the path that precede and follow it."""
    return str(getattr(error, "strerror", None) or error).splitlines()[0]


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Packets up to the end of the file or to where it is broken, the last one empty."""
    try:
        yield from container.demux(stream)
    except av.error.FFmpegError:
        yield cast(Packet[VideoStream], Packet())


def _decode(stream: VideoStream, packet: Packet[VideoStream] | None) -> list[VideoFrame]:
    """Frames that a packet completes; none where it is damaged, so that decoding goes on behind it.

    An empty packet, or none, ends the stream: the decoder hands out the frames it holds back.
    """
    try:
        return stream.codec_context.decode(packet if packet is not None and packet.size else None)
    except av.error.FFmpegError:
        return []


def _nal_length_bytes(stream: VideoStream) -> int:
    """Bytes before each unit of an H.264 packet that give its length; 0 for other codecs and packings."""
    extradata = stream.codec_context.extradata
    if stream.codec_context.name != "h264" or not extradata or len(extradata) < 5 or extradata[0] != 1:
        return 0
    return (extradata[4] & 3) + 1


def _is_unreferenced(packet: Packet[VideoStream], length_bytes: int) -> bool:
    """Whether the H.264 picture in a packet is referred to by no other (PyAV does not say so for x264)."""
    units = memoryview(packet)
    at = 0
    while at + length_bytes < len(units):
        header = units[at + length_bytes]
        if 1 <= header & 31 <= 5:  # a slice; all slices of a picture agree
            return not header & 0x60
        at += length_bytes + int.from_bytes(units[at : at + length_bytes], "big")
    return False


def probe(path: str) -> VideoIndex:
    """Index a file: times of its frames, displayed size, and which packets depend on which.

    One pass over the packets, decoding until the first frame appears.

    Raises:
        VideoError: If the file is missing, is no video, or not one frame of it decodes.
    """
    rows: list[_Row] = []
    first: VideoFrame | None = None
    with _opened(path) as (container, stream):
        length_bytes = _nal_length_bytes(stream)
        for packet in _packets(container, stream):
            if first is None:
                first = next(iter(_decode(stream, packet)), None)
            if packet.size:
                droppable = _is_unreferenced(packet, length_bytes) if length_bytes else packet.is_disposable
                rows.append(_Row(packet.pts, packet.is_keyframe, droppable, not packet.is_discard))
        if first is None or not any(row.shown for row in rows):
            raise VideoError(path, "no frame can be decoded")
        tick = float(stream.time_base or 0)
        rate = float(stream.average_rate or stream.guessed_rate or _FALLBACK_FPS)
        timeless = bool(_TIMELESS_CONTAINERS & set(container.format.name.split(",")))
    stored = [row.pts for row in rows if row.pts is not None]
    timed = tick > 0 and len(set(stored)) == len(rows)
    sequential = timeless or not timed
    pts = np.array(stored if timed else [], dtype=np.int64)
    shown = np.flatnonzero([row.shown for row in rows])
    if timed:
        shown = shown[np.argsort(pts[shown])]
        times = (pts[shown] - pts[shown[0]]) * tick
    else:
        times = np.arange(len(shown)) / rate
    quarter_turns = round(first.rotation / 90) % 4
    height, width = (first.width, first.height) if quarter_turns % 2 else (first.height, first.width)
    interval = float(np.median(np.diff(times))) if len(times) > 1 else 1 / rate
    return VideoIndex(
        path=path,
        info=VideoInfo(
            times=times,
            duration=float(times[-1]) + interval,
            height=height,
            width=width,
            tolerance=max(1e-6, min(tick / 2, interval / 8)),
        ),
        rotation=quarter_turns,
        sequential=sequential,
        pts=np.empty(0, dtype=np.int64) if sequential else pts,
        keyframe=np.array([row.keyframe for row in rows]),
        droppable=np.array([row.droppable for row in rows]),
        shown=np.empty(0, dtype=np.int64) if sequential else shown,
    )


def read_frames(
    index: VideoIndex,
    frames: Sequence[int] | NDArray[np.int64],
    *,
    height: int | None = None,
    width: int | None = None,
    interpolation: Interpolation = "BILINEAR",
) -> Decoded:
    """Decode frames by number, each resized as it is converted to RGB.

    Args:
        index: From ``probe``.
        frames: Numbers in the order shown, in any order and with repeats.
        height: Rows of the result; the displayed picture's own by default.
        width: Columns of the result; the displayed picture's own by default.
        interpolation: How to resize. Both average over the pixels between samples when shrinking.

    Raises:
        VideoError: If the file cannot be opened or nothing of it decodes.
        IndexError: If a number is not one of the video's frames.
    """
    wanted, places = np.unique(np.asarray(frames, dtype=np.int64), return_inverse=True)
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < index.info.frames:
        asked = f"frames {wanted[0]} to {wanted[-1]} asked for"
        raise IndexError(f"{index.path}: {asked}, 0 to {index.info.frames - 1} exist")
    collector = _Collector(
        count=len(wanted),
        height=index.info.height if height is None else height,
        width=index.info.width if width is None else width,
        rotation=index.rotation,
        interpolation=interpolation,
    )
    if index.sequential or not _read_planned(index, wanted, collector):
        _read_through(index, wanted, collector)
    return Decoded(collector.pixels[places], collector.filled[places])


class _Collector:
    """The frames wanted, being filled in."""

    def __init__(self, *, count: int, height: int, width: int, rotation: int, interpolation: Interpolation) -> None:
        self.pixels = np.empty((count, height, width, 3), dtype=np.uint8)
        self.filled = np.zeros(count, dtype=np.bool_)
        self._size = (height, width)
        self._rotation = rotation
        self._interpolation = interpolation

    def put(self, place: int, frame: VideoFrame, *, filled: bool = False) -> None:
        """Convert a frame into its place."""
        height, width = reversed(self._size) if self._rotation % 2 else self._size
        # Without threads=1 the converter starts one thread per core.
        picture = frame.to_ndarray(
            format="rgb24", width=width, height=height, interpolation=self._interpolation, threads=1
        )
        self.pixels[place] = np.rot90(picture, self._rotation)
        self.filled[place] = filled


def _needed(index: VideoIndex, packets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Packets to feed so that the given ones decode, in decoding order.

    From each, back to the keyframe it hangs on, without the unreferenced ones between. A frame shown before
    the keyframe it follows in the file refers to the group before as well (a leading picture).
    """
    keyframes = np.flatnonzero(index.keyframe)
    needed = np.zeros(len(index.pts), dtype=np.bool_)
    for packet in packets:
        at = int(np.searchsorted(keyframes, packet, side="right")) - 1
        while at > 0 and index.pts[keyframes[at]] > index.pts[packet]:
            at -= 1
        start = keyframes[at] if at >= 0 else 0
        needed[start : packet + 1] = True
    needed &= ~index.droppable
    needed[packets] = True
    return np.flatnonzero(needed)


def _read_planned(index: VideoIndex, wanted: NDArray[np.int64], into: _Collector) -> bool:
    """Feed only the packets that the wanted frames depend on; says whether every one of them came out."""
    packets = index.shown[wanted]
    feed = _needed(index, packets)
    pending = {int(index.pts[packet]): place for place, packet in enumerate(packets)}
    left_to_feed = {int(index.pts[packet]) for packet in feed}

    def take(frames: list[VideoFrame]) -> None:
        for frame in frames:
            place = pending.pop(frame.pts, None) if frame.pts is not None else None
            if place is not None:
                into.put(place, frame)

    with _opened(index.path) as (container, stream):
        if len(feed) and feed[0] > 0:
            container.seek(int(index.pts[feed[0]]), stream=stream, backward=True)
        for packet in _packets(container, stream):
            if packet.pts in left_to_feed:
                left_to_feed.discard(packet.pts)
                take(_decode(stream, packet))
            if not pending or not left_to_feed or not packet.size:
                break
        if pending:
            take(_decode(stream, None))
    return not pending


def _read_through(index: VideoIndex, wanted: NDArray[np.int64], into: _Collector) -> None:
    """Decode from the start; a frame that does not come out shows the one before it (or the first)."""
    # A frame is known by its time where times are trusted, else by its count.
    keys = (wanted if index.sequential else index.pts[index.shown[wanted]]).tolist()
    last: VideoFrame | None = None
    place = 0
    with _opened(index.path) as (container, stream):
        for number, frame in enumerate(_all_frames(container, stream)):
            key = number if index.sequential else frame.pts
            if key is None:
                continue
            while place < len(keys) and keys[place] < key:
                into.put(place, last or frame, filled=True)
                place += 1
            if place < len(keys) and keys[place] == key:
                into.put(place, frame)
                place += 1
            if place == len(keys):
                return
            last = frame
        if last is None:
            raise VideoError(index.path, "no frame can be decoded")
        for missing in range(place, len(keys)):
            into.put(missing, last, filled=True)


def _all_frames(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    for packet in _packets(container, stream):
        yield from _decode(stream, packet)
