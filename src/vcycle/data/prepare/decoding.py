"""Reads a whole video in order, from a file or a folder of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.data.pictures import holds_pictures
from vcycle.data.video import VideoIndex, every_frame, probe
from vcycle.data.video.colors import PICTURES, Appearance, appearance_of
from vcycle.data.video.orientation import UPRIGHT, Orientation
from vcycle.data.video.scaling import Scaler

__all__ = ["Whole", "appearance_in", "displayed", "is_of_pictures", "open_whole", "to_rgb", "whole_of"]

_FINE = Fraction(1, 90_000)  # the clock for times that are not multiples of one interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """A video, with everything needed to write its frames elsewhere."""

    info: VideoInfo
    clock: Fraction
    """Seconds per tick."""

    pts: NDArray[np.int64]
    """Presentation times in ticks, strictly increasing from 0."""

    orientation: Orientation
    """From a decoded frame to the displayed one."""

    frames: Iterator[tuple[VideoFrame, bool]]
    """Every frame once, and whether it is missing and repeats another."""


def is_of_pictures(path: str, frame_rate: float | None) -> bool:
    """Return whether ``open_whole`` opens a path as a folder of pictures or a single one, not as a video file."""
    return frame_rate is not None and holds_pictures(path)


def open_whole(path: str, frame_rate: float | None = None, tell: Callable[[float], None] = lambda _: None) -> Whole:
    """Open a file; or with a frame rate, a folder of pictures or a single one, too.

    Args:
        path: The file or folder.
        frame_rate: Pictures per second of a folder; None accepts files alone.
        tell: Progress callback; called with 0 while a file is decoded to index it.

    Raises:
        VideoError: If the video cannot be read; iterating over the frames may raise it too.
    """
    if frame_rate is not None and is_of_pictures(path, frame_rate):
        return _folder(path, frame_rate)
    return whole_of(probe(path, on_packet=lambda: tell(0.0)))


def whole_of(index: VideoIndex) -> Whole:
    """Open an indexed file."""
    pts, clock = _stamps(index)
    return Whole(info=index.info, clock=clock, pts=pts, orientation=index.orientation, frames=every_frame(index))


def appearance_in(path: str, frame_rate: float | None = None) -> Appearance:
    """Return the colors of what ``open_whole`` opens.

    Raises:
        VideoError: If a file cannot be read, or no frame of it decodes.
    """
    return PICTURES if is_of_pictures(path, frame_rate) else appearance_of(path)


def displayed(whole: Whole, appearance: Appearance) -> Iterator[tuple[NDArray[np.uint8] | NDArray[np.uint16], bool]]:
    """Yield every frame in RGB as displayed, ``(H, W, 3)``, uint16 for HDR, and whether it repeats another."""
    size, scale = (whole.info.height, whole.info.width), Scaler()
    matrix = appearance.colors.matrix if appearance.guessed else None
    for frame, missing in whole.frames:
        shown = to_rgb(frame, whole.orientation, size, scale, deep=appearance.colors.is_hdr, matrix=matrix)
        yield cast("NDArray[np.uint8] | NDArray[np.uint16]", shown.to_ndarray()), missing


def to_rgb(
    frame: VideoFrame,
    orientation: Orientation,
    size: tuple[int, int],
    scale: Scaler,
    *,
    deep: bool = False,
    matrix: int | None = None,
) -> VideoFrame:
    """Convert a frame to RGB, as displayed and resized.

    Args:
        frame: The decoded frame.
        orientation: From the decoded to the displayed frame.
        size: Height and width as displayed.
        scale: The scaler of the video and size.
        deep: Whether to use 16 bits per channel rather than 8.
        matrix: Color matrix; by default the frame's, or BT.601 if it has none.
    """
    height, width = orientation.size(*size)
    resized = scale(frame, height, width, deep=deep, matrix=matrix)
    if orientation == UPRIGHT:
        return resized
    turned = np.ascontiguousarray(orientation.apply(cast("NDArray[np.uint8]", resized.to_ndarray())))
    return VideoFrame.from_ndarray(turned, format=resized.format.name)


def _stamps(index: VideoIndex) -> tuple[NDArray[np.int64], Fraction]:
    """Return times in ticks of a clock: the file's own ticks, or counted if they do not number frames."""
    times = index.info.times
    if not index.sequential and len(times) > 1:
        pts = index.pts[index.shown]
        pts = pts - pts[0]
        return pts, _fraction(float(times[-1]) / int(pts[-1]))
    interval = float(np.median(np.diff(times))) if len(times) > 1 else index.info.duration
    if interval > 0:
        counted = np.rint(times / interval).astype(np.int64)
        if np.allclose(counted * interval, times, atol=interval / 100) and (np.diff(counted) > 0).all():
            return counted, _fraction(interval)
    pts = np.rint(times / float(_FINE)).astype(np.int64)
    # At least one tick apart, even if rounding made times equal.
    steps = np.arange(len(pts))
    return np.maximum.accumulate(pts - steps) + steps, _FINE


def _fraction(seconds: float) -> Fraction:
    """Return the ratio behind a float: a clock's period is a ratio of small integers."""
    return 1 / Fraction(1 / seconds).limit_denominator(1001) if seconds < 1 else Fraction(seconds).limit_denominator()


def _folder(path: str, frame_rate: float) -> Whole:
    from vcycle.data.images import ImageSource  # needs torch, unlike video files
    from vcycle.data.layouts import VideoList

    root = Path(path)
    source = ImageSource(
        VideoList(root=root, paths=(".",), labels=(0,), classes=("",), source=root, frame_rate=frame_rate)
    )
    info = source.info(0)
    size = (info.height, info.width)

    def frames() -> Iterator[tuple[VideoFrame, bool]]:
        last: NDArray[np.uint8] | None = None
        waiting = 0
        for number in range(info.frames):
            pixels = _picture(source, number, size)
            if pixels is None and last is None:
                waiting += 1  # repeats the first that can be decoded
                continue
            missing = pixels is None
            last = last if pixels is None else pixels
            assert last is not None
            for _ in range(waiting):
                yield av.VideoFrame.from_ndarray(last, format="rgb24"), True
            waiting = 0
            yield av.VideoFrame.from_ndarray(last, format="rgb24"), missing
        if last is None:  # a single picture, of which only the header can be read
            source.read(0, np.array([0]), resized=size, crop=(0, 0, *size), antialias=True)

    return Whole(
        info=info, clock=_fraction(1 / frame_rate), pts=np.arange(info.frames), orientation=UPRIGHT, frames=frames()
    )


def _picture(source: object, number: int, size: tuple[int, int]) -> NDArray[np.uint8] | None:
    from vcycle.data.images import ImageSource
    from vcycle.data.video import VideoError

    assert isinstance(source, ImageSource)
    try:
        read = source.read(0, np.array([number]), resized=size, crop=(0, 0, *size), antialias=True)
    except VideoError:
        return None
    return np.asarray(read.pixels[0].numpy())
