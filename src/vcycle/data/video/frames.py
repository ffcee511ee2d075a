"""Decodes frames of an indexed video, each resized during conversion, straight into the clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vcycle.data.video.container import (
    Decoder,
    InputContainer,
    VideoError,
    VideoFrame,
    VideoStream,
    opened,
    packets,
    seek,
)
from vcycle.data.video.index import VideoIndex
from vcycle.data.video.scaling import Scaler

__all__ = ["Decoded", "every_frame", "read_frames"]

_SEEK_OVER = 96  # above this many packets between two wanted ones, seeking is cheaper than reading


class Decoded(NamedTuple):
    """Frames in the requested order."""

    pixels: NDArray[np.uint8]
    """``(T, H, W, 3)``, RGB."""

    filled: NDArray[np.bool_]
    """``(T,)``: frames that are damaged, or could not be decoded and repeat the one before."""


def read_frames(
    index: VideoIndex,
    frames: Sequence[int] | NDArray[np.int64],
    *,
    height: int | None = None,
    width: int | None = None,
    crop: tuple[int, int, int, int] | None = None,
    out: NDArray[np.uint8] | None = None,
) -> Decoded:
    """Decode frames by number, each resized during conversion to RGB.

    Resizing is bilinear, with antialiasing when it shrinks.

    Args:
        index: From ``probe``.
        frames: Frame numbers in display order; may be unsorted and repeat.
        height: Height of the resized picture; the displayed picture's by default.
        width: Width of the resized picture; the displayed picture's by default.
        crop: Top, left, height and width of the crop in the resized picture; the whole picture by default.
        out: Output array ``(T, H, W, 3)``; a new array by default.

    Raises:
        VideoError: If the file cannot be opened, has changed since it was indexed, or no frame decodes.
        IndexError: If a frame number is out of range.
    """
    wanted, firsts, places = np.unique(np.asarray(frames, dtype=np.int64), return_index=True, return_inverse=True)
    if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < index.info.frames:
        asked = f"frames {wanted[0]} to {wanted[-1]} requested"
        raise IndexError(f"{index.path}: {asked}, but it has frames 0 to {index.info.frames - 1}")
    size = (index.info.height if height is None else height, index.info.width if width is None else width)
    top, left, rows, columns = crop or (0, 0, *size)
    clip = _Clip(
        np.empty((len(places), rows, columns, 3), dtype=np.uint8) if out is None else out,
        places=firsts,
        size=size,
        corner=(top, left),
        index=index,
    )
    index.check()
    if index.sequential or not _read_planned(index, wanted, clip):
        _read_through(index, wanted, clip)
    if len(wanted) < len(places):  # repeats are copied from the first occurrence
        sources = firsts[places]
        repeats = np.flatnonzero(sources != np.arange(len(sources)))
        clip.pixels[repeats] = clip.pixels[sources[repeats]]
        clip.filled[repeats] = clip.filled[sources[repeats]]
    return Decoded(clip.pixels, clip.filled)


class _Clip:
    """The clip being filled."""

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        *,
        places: NDArray[np.int64],
        size: tuple[int, int],
        corner: tuple[int, int],
        index: VideoIndex,
    ) -> None:
        frames, height, width, _ = pixels.shape
        top, left = corner
        self.pixels = pixels
        self.filled = np.zeros(frames, dtype=np.bool_)
        self._places = places
        self._part = slice(top, top + height), slice(left, left + width)
        self._orientation = index.orientation
        self._height, self._width = index.orientation.size(*size)
        self._scale = Scaler()

    def put(self, number: int, frame: VideoFrame, *, filled: bool = False) -> None:
        """Convert a frame into the place of the ``number``-th wanted frame."""
        picture = self._scale(frame, self._height, self._width).to_ndarray()
        place = self._places[number]
        self.pixels[place] = self._orientation.apply(picture)[self._part]
        self.filled[place] = filled


def _needed(index: VideoIndex, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the packets needed to decode the given ones, in decoding order.

    These are the packets from each back to its keyframe, without unreferenced ones between. A frame shown before the
    keyframe that it follows in the file also refers to the group before (a leading picture).
    """
    keyframes = np.flatnonzero(index.keyframe)
    needed = np.zeros(len(index.pts), dtype=np.bool_)
    for packet in wanted:
        at = int(np.searchsorted(keyframes, packet, side="right")) - 1
        while at > 0 and index.pts[keyframes[at]] > index.pts[packet]:
            at -= 1
        start = keyframes[at] if at >= 0 else 0
        needed[start : packet + 1] = True
    needed &= ~index.droppable
    needed[wanted] = True
    needed[0] |= index.primed
    return np.flatnonzero(needed)


def _reorder_depth(pts: NDArray[np.int64]) -> int:
    """Return the maximum number of packets that come before one shown before them."""
    shown_at = np.empty(len(pts), dtype=np.int64)
    shown_at[np.argsort(pts)] = np.arange(len(pts))
    return int((np.arange(len(pts)) - shown_at).max(initial=0))


def _read_planned(index: VideoIndex, wanted: NDArray[np.int64], into: _Clip) -> bool:
    """Feed only the packets that the wanted frames depend on; return whether all of them decoded undamaged.

    Frames that fail may still decode from the start: a decoder may need data at the beginning of a file.
    """
    targets = index.shown[wanted]
    feed = _needed(index, targets)
    pending = {pts: number for number, pts in enumerate(index.pts[targets].tolist())}
    whole = True

    def take(frames: list[tuple[VideoFrame, bool]]) -> None:
        nonlocal whole
        for frame, damaged in frames:
            number = pending.pop(frame.pts, None) if frame.pts is not None else None
            whole &= number is None or not damaged
            if number is not None:
                into.put(number, frame, filled=damaged)

    with opened(index.path, index.demuxer) as (container, stream):
        if stream.codec_context.name == "h264":
            # Not every stream declares its reorder depth; a decoder that has to guess may drop frames.
            stream.codec_context.options = {"has_b_frames": str(_reorder_depth(index.pts[feed]))}
        for first, run in _runs(index, feed):
            if first and not seek(container, stream, int(index.pts[first])):
                return False
            decoder = Decoder(stream)
            # A packet that is never shown may have the next one's time.
            left, count = Counter(index.pts[run].tolist()), len(run)
            for packet in packets(container, stream):
                if packet.pts is not None and left[packet.pts]:
                    left[packet.pts] -= 1
                    count -= 1
                    take(decoder.feed(packet))
                if not pending or not count or not packet.size:
                    break
            if pending:
                take(decoder.feed(None))
    return whole and not pending


def _runs(index: VideoIndex, feed: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield packets to feed in groups, each with the packet to seek to first.

    A group starts at a keyframe so far after the last packet that seeking is cheaper than reading on.
    """
    far = (np.diff(feed) > _SEEK_OVER) & index.keyframe[feed[1:]]
    for run in np.split(feed, np.flatnonzero(far) + 1):
        if len(run):
            yield int(run[0]), run


def every_frame(index: VideoIndex) -> Iterator[tuple[VideoFrame, bool]]:
    """Yield every frame in display order, as coded, and whether it is damaged or repeats another.

    Raises:
        VideoError: If the file cannot be opened, has changed since it was indexed, or none of its frames is undamaged.
    """
    index.check()
    whole, damaged = index.info.frames, 0
    for frame, is_damaged in _in_order(index, np.arange(whole)):
        damaged += is_damaged
        if damaged == whole:  # the decoder's output is grey then
            raise VideoError(index.path, f"none of its {whole} frames is undamaged")
        yield frame, is_damaged


def _read_through(index: VideoIndex, wanted: NDArray[np.int64], into: _Clip) -> None:
    """Decode from the start."""
    for number, (frame, filled) in enumerate(_in_order(index, wanted)):
        into.put(number, frame, filled=filled)


def _in_order(index: VideoIndex, wanted: NDArray[np.int64]) -> Iterator[tuple[VideoFrame, bool]]:
    """Yield frames by ascending number, decoded from the start; a missing one repeats the one before (or the first).

    The second value says whether a frame is damaged or repeats another.
    """
    # A frame is identified by its time if times are reliable, else by its count.
    counted = not len(index.pts)
    keys = (wanted if counted else index.pts[index.shown[wanted]]).tolist()
    last: VideoFrame | None = None
    at = 0
    with opened(index.path) as (container, stream):
        for count, (frame, damaged) in enumerate(_decoded(container, stream)):
            key = count if counted else frame.pts
            if key is None:
                continue
            while at < len(keys) and keys[at] < key:
                yield last or frame, True
                at += 1
            if at < len(keys) and keys[at] == key:
                yield frame, damaged
                at += 1
            if at == len(keys):
                return
            last = frame
    if last is None:
        raise VideoError(index.path, "no frame can be decoded")
    for _ in range(at, len(keys)):
        yield last, True


def _decoded(container: InputContainer, stream: VideoStream) -> Iterator[tuple[VideoFrame, bool]]:
    decoder = Decoder(stream)
    for packet in packets(container, stream):
        yield from decoder.feed(packet)
