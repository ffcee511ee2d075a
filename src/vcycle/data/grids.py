"""Sampling grids: the times and the part of the picture that a clip of a given shape samples.

A grid is a span and a stride in time and in space (Wu et al. 2020, section 3). Coarser shapes cover the same spans with
fewer samples: the stride grows as the number of frames shrinks, and the picture is resized to a smaller short side
before it is cropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vcycle.data.info import VideoInfo
from vcycle.errors import DataError
from vcycle.plan.arguments import check_number

if TYPE_CHECKING:
    from vcycle.data.request import SampleRequest
    from vcycle.data.views import Views
    from vcycle.plan import Shape

__all__ = ["Grid", "GridSampler", "Short"]

Short = Literal["hold", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """The sampling grid of one clip."""

    times: NDArray[np.float64]
    """Seconds from the start of the video, one per frame of the clip."""

    resized: tuple[int, int]
    """Height and width that the whole picture is resized to."""

    crop: tuple[int, int, int, int]
    """Top, left, height and width of the clip in the resized picture."""

    flip: bool
    """Whether the clip is flipped horizontally."""

    short: bool = False
    """Whether the video is shorter than the clip."""


def _between(low: float, high: float, draw: float) -> float:
    return low + (high - low) * draw


def _check_range(name: str, pair: tuple[float, float], lowest: float, highest: float) -> None:
    if not lowest <= pair[0] <= pair[1] <= highest:
        raise DataError(f"{name}={pair}: must be two ascending numbers from {lowest:g} to {highest:g}")


def _resize_to(short_side: float, shape: Shape, info: VideoInfo) -> tuple[int, int]:
    """Size of the whole picture with this short side, no smaller than the clip in either direction."""
    scale = max(short_side / min(info.height, info.width), shape.height / info.height, shape.width / info.width)
    return max(shape.height, round(info.height * scale)), max(shape.width, round(info.width * scale))


@dataclass(frozen=True, kw_only=True)
class GridSampler:
    """Draws a sampling grid for any shape, relative to the baseline's grid.

    Set ``stride`` or ``span`` for time; with neither, the baseline's clip spans the whole video. Set ``short_side`` or
    ``field`` for space; with neither, ``short_side`` is the baseline's size.

    Example:
        >>> kinetics = GridSampler(frames=32, size=224, stride=2, short_side=(256, 340), flip=True)
    """

    frames: int
    """Number of frames of a baseline clip, T."""

    size: int
    """Height and width of a baseline clip in pixels, H."""

    stride: float | None = None
    """Source frames between consecutive frames of a baseline clip, τ. A clip of t frames takes a random real-valued
    stride, uniform in [τ, τ·T/t], from a random start."""

    fps: float | None = None
    """Frames per second in which ``stride`` is measured; by default each video's own frame rate."""

    span: tuple[float, float] | None = None
    """Alternative to a stride: the fraction of the video that a clip spans, for any number of frames."""

    segments: bool = False
    """Draw each frame at random from its own segment of the span, rather than take the middle of each segment."""

    short_side: tuple[float, float] | None = None
    """Short side of the resized picture in pixels at the baseline's size, s_min and s_max. A clip of size h draws it
    uniformly from [s_min·h/H, s_max]; the clip is a random crop."""

    field: tuple[float, float] | None = None
    """Alternative to a short side: the fraction of the picture's short side that a clip shows, at any size."""

    flip: bool = False
    """Flip half of the clips horizontally; turn it off if left and right differ in meaning."""

    short: Short = "hold"
    """How to fill a clip that is longer than its video: ``hold`` the last frame, as PySlowFast does, or ``loop`` the
    video from its start, as I3D does (Carreira and Zisserman 2017, section 2.5). The clip starts with the video. A
    video shorter than two strides is sampled at every frame, or evenly if it has more frames than the clip: the stride
    would skip most of it."""

    antialias: bool = True
    """Antialias when a picture shrinks: average the pixels between samples rather than skip them."""

    def __post_init__(self) -> None:
        """Validate the values."""
        check_number("frames", self.frames, whole=True, error=DataError)
        check_number("size", self.size, whole=True, error=DataError)
        if self.frames < 1 or self.size < 1:
            raise DataError(f"frames={self.frames}, size={self.size}: both must be at least 1")
        if self.stride is not None and self.span is not None:
            raise DataError(f"stride={self.stride} and span={self.span} exclude each other: set one")
        if self.short_side is not None and self.field is not None:
            raise DataError(f"short_side={self.short_side} and field={self.field} exclude each other: set one")
        if self.stride is not None and not self.stride > 0:
            raise DataError(f"stride={self.stride}: must be a positive number of source frames")
        if self.fps is not None and (self.stride is None or not self.fps > 0):
            raise DataError(f"fps={self.fps}: must be a positive rate, and needs a stride")
        if self.short not in get_args(Short):
            raise DataError(f"short={self.short!r}: {' or '.join(get_args(Short))} is accepted")
        if self.span is not None:
            _check_range("span", self.span, 0.01, 1.0)
        if self.field is not None:
            _check_range("field", self.field, 0.01, 1.0)
        if self.short_side is not None:
            _check_range("short_side", self.short_side, self.size, float("inf"))

    def train(self, request: SampleRequest, info: VideoInfo) -> Grid:
        """Return the random grid of a request; the same request always gives the same grid."""
        # All draws at once, so that disabling an option does not shift other draws.
        generator = request.generator()
        stride, start, side, top, left, flip = generator.random(6).tolist()
        shape = request.shape
        low, high = self._strides(shape.frames, info)
        smallest, largest = self._short_sides(shape.size)
        return self._grid(
            info,
            frames=shape.frames,
            stride=_between(low, high, stride),
            resized=_resize_to(_between(smallest, largest, side), shape, info),
            size=(shape.height, shape.width),
            place=(start, top, left),
            flip=self.flip and flip < 0.5,
            within=generator.random(shape.frames) if self.segments else 0.5,
        )

    def view(self, views: Views, clip: int, info: VideoInfo) -> Grid:
        """Return the deterministic grid of an evaluation clip: the widest stride, no flip.

        Args:
            views: The views of each video.
            clip: Number of the clip, from 0.
            info: The video.

        Returns:
            The grid. With several crops, it covers the strip of the picture that contains them along its longer side;
            they are cut at ``views.crop_at``.
        """
        shape = views.shape
        height, width = _resize_to(self.short_side_of(views), shape, info)
        size = (shape.height, shape.width)
        if views.crops > 1:
            size = (height, shape.width) if height > width else (shape.height, width)
        return self._grid(
            info,
            frames=shape.frames,
            stride=self._strides(shape.frames, info)[1],
            resized=(height, width),
            size=size,
            place=(views.start(clip), 0.5, 0.5),
            flip=False,
        )

    def short_side_of(self, views: Views) -> float:
        """Return the short side of the resized picture that views are cut from, in pixels."""
        return views.short_side or self._short_sides(views.shape.height)[0]

    def _strides(self, frames: int, info: VideoInfo) -> tuple[float, float]:
        """Return the shortest and longest stride in seconds for a clip of this many frames."""
        if self.span is not None:
            return self.span[0] * info.duration / frames, self.span[1] * info.duration / frames
        whole = info.duration / self.frames
        baseline = whole if self.stride is None else self.stride / (self.fps or info.fps)
        stretched = baseline * self.frames / frames
        return min(baseline, stretched), stretched

    def _short_sides(self, size: int) -> tuple[float, float]:
        """Return the smallest and largest short side of the resized picture for a clip of this size."""
        if self.field is not None:
            return size / self.field[1], size / self.field[0]
        low, high = self.short_side or (self.size, self.size)
        smallest = low * size / self.size
        return smallest, max(smallest, high)

    def _grid(
        self,
        info: VideoInfo,
        *,
        frames: int,
        stride: float,
        resized: tuple[int, int],
        size: tuple[int, int],
        place: tuple[float, float, float],
        flip: bool,
        within: float | NDArray[np.float64] = 0.5,
    ) -> Grid:
        """Build a grid.

        ``place``, from 0 to 1, is the position in the free room in time, height and width; ``within`` is the position
        of each frame in its segment of the span.
        """
        start = max(0.0, info.duration - stride * frames) * place[0]
        top, left = (
            min(int((whole - part + 1) * p), whole - part)
            for whole, part, p in zip(resized, size, place[1:], strict=True)
        )
        # Frames are at the middle of their segments, so coarse and fine clips have the same center.
        times = start + (np.arange(frames, dtype=np.float64) + within) * stride
        short = stride * frames > info.duration * (1 + 1e-9)
        return Grid(
            times=self._short_times(info, times, stride) if short else times,
            resized=resized,
            crop=(top, left, *size),
            flip=flip,
            short=short,
        )

    def _short_times(self, info: VideoInfo, times: NDArray[np.float64], stride: float) -> NDArray[np.float64]:
        """Return the times of a clip that is longer than its video."""
        if info.duration >= 2 * stride:
            # The end wraps to the start, even if rounding puts a time just before it.
            return (times + info.tolerance) % info.duration if self.short == "loop" else times
        over = len(times) - info.frames
        if over <= 0:
            return (np.arange(len(times), dtype=np.float64) + 0.5) * (info.duration / len(times))
        if self.short == "loop":
            return info.times[np.arange(len(times)) % info.frames]
        return np.concatenate([info.times, info.duration * np.arange(1.0, over + 1)])
