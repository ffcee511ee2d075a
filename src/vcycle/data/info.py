"""Metadata of a video that is needed to choose a clip: the times of its frames, and its size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["VideoInfo"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoInfo:
    """Presentation times and display size of a video."""

    times: NDArray[np.float64]
    """Seconds at which each frame is first shown, ascending; the first is 0."""

    duration: float
    """Seconds from the first frame to the end of the last."""

    height: int
    """Height of the displayed picture in pixels (after rotation)."""

    width: int
    """Width of the displayed picture in pixels (after rotation)."""

    tolerance: float = 1e-6
    """Seconds by which stored times may be late, because they are rounded to the file's clock."""

    incomplete: str = ""
    """What the file lacks, such as "ends after 4.0 of 8.0 s" for a truncated one; empty if nothing known."""

    @classmethod
    def uniform(cls, frames: int, height: int, width: int, fps: float = 1.0) -> "VideoInfo":
        """Create the metadata of a video with evenly spaced frames, such as a clip tensor.

        Example:
            >>> VideoInfo.uniform(4, 64, 64, fps=2).duration
            2.0
        """
        return cls(times=np.arange(frames) / fps, duration=frames / fps, height=height, width=width)

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.times)

    @property
    def fps(self) -> float:
        """Mean frame rate."""
        return len(self.times) / self.duration

    def frame_at(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of the frames displayed at given times.

        Times before the first frame map to the first, times past the end to the last: a clip longer than its video
        holds the last frame.

        Example:
            >>> VideoInfo.uniform(4, 64, 64, fps=2).frame_at(np.array([-1.0, 0.6, 9.0])).tolist()
            [0, 1, 3]
        """
        numbers = np.searchsorted(self.times, seconds + self.tolerance, side="right") - 1
        return np.clip(numbers, 0, len(self.times) - 1)

    def window(self, start: float, end: float) -> "tuple[VideoInfo, int]":
        """Return the part from ``start`` to before ``end`` seconds, as a video of its own.

        It starts with the first frame shown in that time; if there is none, with the frame then on display.

        Returns:
            The part, with times relative to its own first frame, and the number of that frame in this video. The part
            is empty if the video ends by ``start``.

        Example:
            >>> part, first = VideoInfo.uniform(10, 64, 64, fps=2).window(1.0, 2.5)
            >>> first, part.frames, part.duration
            (2, 3, 1.5)
        """
        first, last = np.searchsorted(self.times, np.array([start, end]) - self.tolerance).tolist()
        if first >= last and start < self.duration:
            first, last = max(0, last - 1), max(1, last)
        times = self.times[first:last]
        shown_until = self.times[last] if last < self.frames else self.duration
        duration = float(min(shown_until, end) - times[0]) if len(times) else 0.0
        part = VideoInfo(
            times=times - times[:1],
            duration=duration,
            height=self.height,
            width=self.width,
            tolerance=self.tolerance,
            incomplete=self.incomplete if end > self.duration else "",
        )
        return part, first
