"""A video file's index: the times of its frames, and which packets depend on which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.data.video.container import (
    Decoder,
    Packet,
    VideoError,
    VideoFrame,
    VideoStream,
    file_status,
    opened,
    packets,
)
from vcycle.data.video.orientation import Orientation

__all__ = ["VideoIndex", "probe"]

_TIMELESS_CONTAINERS = frozenset({"avi", "mpegts", "mpeg"})  # their packets' times do not number the frames
_DESCRIBING_CONTAINERS = frozenset({"mp4", "matroska"})
_SELF_DESCRIBED_CODECS = frozenset({"h264", "hevc", "vp8", "vp9"})
_FALLBACK_FPS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoIndex:
    """What one pass over a file's packets tells. Arrays run over packets in decoding order."""

    path: str
    info: VideoInfo
    """Times and displayed size of the frames shown."""

    orientation: Orientation
    """From the coded picture to the displayed one."""

    sequential: bool
    """Frames can only be told by counting them from the start."""

    pts: NDArray[np.int64]
    """Presentation times in ticks of the stream's clock (empty if sequential)."""

    keyframe: NDArray[np.bool_]
    droppable: NDArray[np.bool_]
    """No other frame refers to this one."""

    shown: NDArray[np.int64]
    """Packet of each frame shown, in the order shown (empty if sequential)."""

    quick: bool = False
    """Header and packets tell all that decoding needs: the file need not be analysed when it is opened again."""

    size: int | None = None
    """Bytes of the file; one of another size is another file, and refused. None: not looked at."""

    modified: int | None = None
    """Time of the file's last change in nanoseconds, as ``size``."""

    def frame_at(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Numbers of the frames on display at given times; see ``VideoInfo.frame_at``."""
        return self.info.frame_at(seconds)

    def check(self) -> None:
        """Refuse to read another file than the one that was indexed.

        Raises:
            VideoError: If the file is gone, no file, or has changed.
        """
        status = file_status(self.path)
        if self.size not in (None, status.st_size) or self.modified not in (None, status.st_mtime_ns):
            raise VideoError(self.path, "the file has changed since it was indexed")


class _Row(NamedTuple):
    """One packet."""

    pts: int | None
    keyframe: bool
    droppable: bool
    shown: bool


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
    status = file_status(path)
    with opened(path) as (container, stream):
        length_bytes = _nal_length_bytes(stream)
        decoder = Decoder(stream)
        for packet in packets(container, stream):
            if first is None:
                first = next((frame for frame, _ in decoder.feed(packet)), None)
            if packet.size:
                droppable = _is_unreferenced(packet, length_bytes) if length_bytes else packet.is_disposable
                rows.append(_Row(packet.pts, packet.is_keyframe, droppable, not packet.is_discard))
        if first is None or not any(row.shown for row in rows):
            raise VideoError(path, "no frame can be decoded")
        tick = float(stream.time_base or 0)
        rate = float(stream.average_rate or stream.guessed_rate or _FALLBACK_FPS)
        formats = set(container.format.name.split(","))
        codec = stream.codec_context.name
    stored = [row.pts for row in rows if row.pts is not None]
    timed = tick > 0 and len(set(stored)) == len(rows)
    sequential = bool(_TIMELESS_CONTAINERS & formats) or not timed
    pts = np.array(stored if timed else [], dtype=np.int64)
    shown = np.flatnonzero([row.shown for row in rows])
    if timed:
        shown = shown[np.argsort(pts[shown])]
        times = (pts[shown] - pts[shown[0]]) * tick
    else:
        times = np.arange(len(shown)) / rate
    orientation = Orientation.of(first)
    height, width = orientation.size(first.height, first.width)
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
        orientation=orientation,
        sequential=sequential,
        pts=np.empty(0, dtype=np.int64) if sequential else pts,
        keyframe=np.array([row.keyframe for row in rows]),
        droppable=np.array([row.droppable for row in rows]),
        shown=np.empty(0, dtype=np.int64) if sequential else shown,
        quick=bool(_DESCRIBING_CONTAINERS & formats) and codec in _SELF_DESCRIBED_CODECS,
        size=status.st_size,
        modified=status.st_mtime_ns,
    )
