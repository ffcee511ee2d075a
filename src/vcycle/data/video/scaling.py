"""Conversion of decoded frames to RGB, resized."""

from av.video.reformatter import Interpolation, VideoReformatter

from vcycle.data.video.container import VideoFrame

__all__ = ["Scaler"]


class Scaler:
    """Converts the frames of a video to RGB, resized; bilinear, with antialiasing when it shrinks.

    FFmpeg prepares filters for a size and a pixel format, which takes as long as it takes to convert a small frame.
    A scaler keeps them for the next frame, and replaces them when a frame differs. Use one per video and size.
    """

    def __init__(self) -> None:
        """Start without filters."""
        self._reformat = VideoReformatter().reformat

    def __call__(
        self, frame: VideoFrame, height: int, width: int, *, deep: bool = False, matrix: int | None = None
    ) -> VideoFrame:
        """Return a frame in RGB.

        Args:
            frame: The decoded frame.
            height: Height of the result, not rotated.
            width: Width of the result, not rotated.
            deep: Whether to use 16 bits per channel rather than 8.
            matrix: Color matrix; by default the frame's, or BT.601 if it has none.
        """
        return self._reformat(
            frame,
            width=width,
            height=height,
            format="rgb48le" if deep else "rgb24",
            src_colorspace=matrix,
            interpolation=Interpolation.BILINEAR,
            threads=1,  # by default, FFmpeg starts one thread per core
        )
