"""The index of a video file: frame times and packet dependencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.data.video.coding import coding_of, needs_first_packet
from vcycle.data.video.container import Decoder, VideoError, VideoFrame, VideoStream, file_stamp, opened, packets
from vcycle.data.video.ending import missing_end
from vcycle.data.video.orientation import Orientation

__all__ = ["VideoIndex", "probe"]

_TIMELESS_CONTAINERS = frozenset({"avi", "mpegts", "mpeg"})  # their packets' times do not number the frames
_DESCRIBING_CONTAINERS = frozenset({"mp4", "matroska"})
_SELF_DESCRIBED_CODECS = frozenset({"h264", "hevc", "vp8", "vp9"})
_FALLBACK_FPS = 25.0
_MOST_REORDERED = 32  # maximum reorder depth of codecs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoIndex:
    """The result of one pass over a file's packets. Arrays are over packets in decoding order."""

    path: str
    info: VideoInfo
    """Frame times and display size."""

    orientation: Orientation
    """From the coded to the displayed picture."""

    sequential: bool
    """Whether frames can only be found by decoding from the start: packets are not frames, or seeking fails."""

    pts: NDArray[np.int64]
    """Presentation times in ticks of the stream's clock: of the packets or, if these are not frames, of the frames;
    empty if frames can only be counted."""

    keyframe: NDArray[np.bool_]
    droppable: NDArray[np.bool_]
    """No other frame refers to this one."""

    shown: NDArray[np.int64]
    """Index into ``pts`` of each frame, in display order; empty if frames are counted."""

    start: float = 0.0
    """Time of the first frame in seconds by the file's clock, to align other streams."""

    primed: bool = False
    """Whether the first packet must be decoded before any other frame."""

    demuxer: str | None = None
    """FFmpeg's demuxer, if header and packets suffice for decoding: reopening the file needs no detection of its format
    and no analysis. None: it needs both."""

    codec: str = ""
    """Name of the codec, such as ``h264``; empty if unknown."""

    size: int | None = None
    """Size of the file in bytes; a file of another size is refused. None: not checked."""

    modified: int | None = None
    """Modification time of the file in nanoseconds, or a hash of a URL's version, checked like ``size``."""

    def frame_at(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of the frames on display at given times; see ``VideoInfo.frame_at``."""
        return self.info.frame_at(seconds)

    @property
    def keyframe_seconds(self) -> float:
        """Longest time from a key frame to the next, or to the end; infinite if only the start can be decoded from."""
        if self.sequential or not len(self.shown):
            return inf
        starts = np.sort(self.pts[self.keyframe])
        times = self.info.times[np.searchsorted(self.pts[self.shown], starts).clip(max=self.info.frames - 1)]
        return float(np.diff(times, append=self.info.duration).max(initial=0.0))

    def check(self) -> None:
        """Refuse a file that has changed since it was indexed.

        Raises:
            VideoError: If the file is missing, not a regular file, or has changed.
        """
        stamp = file_stamp(self.path)
        if self.size not in (None, stamp.size) or self.modified not in (None, stamp.changed):
            raise VideoError(self.path, "the file has changed since it was indexed")


class _Row(NamedTuple):
    """One packet."""

    pts: int | None
    keyframe: bool
    droppable: bool
    shown: bool
    plain: bool
    opens: bool


class _Timeline(NamedTuple):
    """The frames of a video, in display order."""

    times: NDArray[np.float64]
    """Seconds since the first frame."""

    first: int | None
    """Time of the first frame in ticks; None if unknown."""

    pts: NDArray[np.int64]
    shown: NDArray[np.int64]
    sequential: bool


def probe(path: str, *, on_packet: Callable[[], None] = lambda: None) -> VideoIndex:
    """Index a file or URL: frame times, display size, and packet dependencies.

    This takes one pass over the packets, decoding until the first frame. If packets may not be frames one to one, or
    their times may not be in display order, the file is decoded once, and the index holds the decoded frames.

    Args:
        path: The file, or a URL that fsspec opens.
        on_packet: Called after each packet when the whole file is decoded, which may take long.

    Raises:
        VideoError: If the file is missing, is not a video, or no frame decodes.
    """
    rows: list[_Row] = []
    first: VideoFrame | None = None
    primed = sure = False
    bidirectional = False
    stamp = file_stamp(path)
    with opened(path) as (container, stream):
        look = coding_of(stream)
        decoder = Decoder(stream)
        for packet in packets(container, stream):
            if first is None:
                first = next((frame for frame, _ in decoder.feed(packet)), None)
            if packet.size:
                if not rows:
                    sure, primed = packet.is_keyframe, needs_first_packet(stream, bytes(packet))
                coded = look(packet)
                sure &= coded.plain
                bidirectional |= coded.bidirectional
                droppable = packet.is_disposable if coded.unreferenced is None else coded.unreferenced
                shown = coded.shown and not packet.is_discard
                rows.append(_Row(packet.pts, packet.is_keyframe, droppable, shown, coded.plain, coded.opens))
        if first is None or not any(row.shown for row in rows):
            raise VideoError(path, "no frame can be decoded")
        tick = float(stream.time_base or 0)
        rate = float(stream.average_rate or stream.guessed_rate or _FALLBACK_FPS)
        formats = set(container.format.name.split(","))
        pts = _stored_times(rows) if tick > 0 else None
        counted = bool(_TIMELESS_CONTAINERS & formats)
        sure = sure and pts is not None and _in_groups(pts, bidirectional=bidirectional)
        codec = stream.codec_context.codec.canonical_name
        # AVI numbers packets in decoding order; transport streams may merge or lose packets.
        numbered = not counted or ("avi" in formats and codec != "h264" and not bidirectional)
        if sure and pts is not None and numbered:
            line = _from_packets(pts, rows, tick, sequential=counted)
        else:
            line = _from_frames(path, None if counted else pts, rows, (tick, rate), on_packet)
        orientation = Orientation.of(first)
        height, width = orientation.size(first.height, first.width)
        interval = float(np.median(np.diff(line.times))) if len(line.times) > 1 else 1 / rate
        duration = float(line.times[-1]) + interval
        described = _DESCRIBING_CONTAINERS & formats if codec in _SELF_DESCRIBED_CODECS else frozenset()
        start = _start(stream, line.first, rows)
        ending = missing_end(path, container, stream, packets=len(rows), start=start, duration=duration)
    return VideoIndex(
        path=path,
        info=VideoInfo(
            times=line.times,
            duration=duration,
            height=height,
            width=width,
            tolerance=max(1e-6, min(tick / 2, interval / 8)),
            incomplete="; ".join(part for part in (ending, _lost(line, rows)) if part),
        ),
        orientation=orientation,
        sequential=line.sequential,
        pts=line.pts,
        keyframe=np.array([row.keyframe for row in rows]),
        droppable=np.array([row.droppable for row in rows]),
        shown=line.shown,
        start=start,
        primed=primed,
        demuxer=next(iter(described), None),
        codec=codec,
        size=stamp.size,
        modified=stamp.changed,
    )


def _lost(line: _Timeline, rows: Sequence[_Row]) -> str:
    """Describe how many frames are missing, if frames are not identified by their times."""
    if len(line.pts) or not rows[0].opens:
        return ""
    coded = sum(row.plain and row.shown for row in rows)
    there = len(line.times)
    return f"{coded - there} of {coded} frames are missing" if coded > there else ""


def _start(stream: VideoStream, first: int | None, rows: Sequence[_Row]) -> float:
    """Return the time of the first frame by the file's clock: later than the stream's start if frames are lost."""
    stored = [row.pts for row in rows if row.shown and row.pts is not None]
    late = first - min(stored) if first is not None and stored else 0
    known = [*stored, *([] if stream.start_time is None else [stream.start_time])]  # AVI declares when decoding starts
    return float((min(known, default=0) + late) * (stream.time_base or 0))


def _stored_times(rows: Sequence[_Row]) -> NDArray[np.int64] | None:
    """Return the packets' times if every shown packet has a unique one, else None."""
    stored = [row.pts for row in rows if row.pts is not None]
    shown = {row.pts for row in rows if row.shown}
    if len(stored) < len(rows) or len(shown) < sum(row.shown for row in rows):
        return None
    return np.array(stored, dtype=np.int64)


def _in_groups(pts: NDArray[np.int64], *, bidirectional: bool) -> bool:
    """Return whether packet times can be display times, and the file does not start with frames of an earlier group.

    Frames that refer to later ones follow them in the file. If all times ascend, they are decoding times.
    """
    return bool(pts.min() == pts[0]) and not (bidirectional and bool((np.diff(pts) > 0).all()))


def _from_packets(pts: NDArray[np.int64], rows: Sequence[_Row], tick: float, *, sequential: bool) -> _Timeline:
    """Build the timeline of packets that are frames, each shown at its time."""
    shown = np.flatnonzero([row.shown for row in rows])
    shown = shown[np.argsort(pts[shown])]
    times = (pts[shown] - pts[shown[0]]) * tick
    return _Timeline(times, int(pts[shown[0]]), pts, shown, sequential)


def _from_frames(
    path: str,
    pts: NDArray[np.int64] | None,
    rows: Sequence[_Row],
    clock: tuple[float, float],
    on_packet: Callable[[], None],
) -> _Timeline:
    """Build the timeline of decoded frames, and of those lost to broken packets between them.

    Args:
        path: The file.
        pts: Times of the packets, if they identify frames.
        rows: The packets.
        clock: Seconds per tick, and the frame rate to use without times.
        on_packet: Called after each packet.

    Raises:
        VideoError: If there are no frames.
    """
    with opened(path) as (container, stream):
        decoder = Decoder(stream)
        stamps: list[tuple[int | None, int | None]] = []
        for packet in packets(container, stream):
            stamps.extend((frame.pts, frame.dts) for frame, _ in decoder.feed(packet))
            on_packet()
    if not stamps:
        raise VideoError(path, "no frame can be decoded")
    tick, rate = clock
    known = _ascending([shown for shown, _ in stamps])
    nothing = np.empty(0, dtype=np.int64)
    if known is None or tick <= 0:
        times, begin = _guessed_times(stamps, tick, rate)
        return _Timeline(times, begin, nothing, nothing, sequential=True)
    missing = [*decoder.failed, *(row.pts for row in rows if row.plain and row.shown)]
    lost = [at for at in missing if at is not None and at > known[0]]
    merged = np.union1d(known, np.array(lost, dtype=np.int64))
    if pts is not None:
        # Frames before the first that decodes do not exist; the others may map to packets one to one.
        shown = np.flatnonzero([row.shown for row in rows] & (pts >= merged[0]))
        if np.array_equal(np.sort(pts[shown]), merged):
            rest = [row._replace(shown=row.shown and at >= merged[0]) for row, at in zip(rows, pts, strict=True)]
            return _from_packets(pts, rest, tick, sequential=False)
    times = (merged - merged[0]) * tick
    return _Timeline(times, int(merged[0]), merged, np.arange(len(merged)), sequential=True)


def _ascending(stamps: Sequence[int | None]) -> NDArray[np.int64] | None:
    """Return times unchanged if they are strictly ascending, else None."""
    known = [stamp for stamp in stamps if stamp is not None]
    array = np.array(known, dtype=np.int64)
    return array if len(known) == len(stamps) and bool((np.diff(array) > 0).all()) else None


def _guessed_times(
    stamps: Sequence[tuple[int | None, int | None]], tick: float, rate: float
) -> tuple[NDArray[np.float64], int | None]:
    """Return the times of frames whose own times are not in display order, and the first in ticks."""
    shown = [stamp for stamp, _ in stamps if stamp is not None]
    ordered = sorted(set(shown))
    for candidate in (
        # Decoding times in the place of the times shown, each of some frame near.
        ordered if len(ordered) == len(stamps) and _displaced(shown) <= _MOST_REORDERED else [],
        [stamp for _, stamp in stamps],
    ):
        known = _ascending(candidate)
        if known is not None and len(known) == len(stamps) and tick > 0:
            return (known - known[0]) * tick, int(known[0])
    return np.arange(len(stamps)) / rate, None


def _displaced(stamps: Sequence[int]) -> int:
    """Return how far a value is at most from its sorted position."""
    return int(np.abs(np.argsort(np.argsort(stamps)) - np.arange(len(stamps))).max(initial=0))
