"""The colours of videos that are written: by BT.709 and of limited range, whatever their source's are, and named."""

from __future__ import annotations

from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import ColorRange, Colorspace

from vcycle.data.video.container import VideoFrame

__all__ = ["name_colours", "to_yuv"]

_BT709 = 1


def to_yuv(picture: VideoFrame) -> VideoFrame:
    """A picture in RGB as it is encoded, in a file whose colours ``name_colours`` has named."""
    # Said, as a picture that was decoded still has the matrix and the range of its source with it.
    return picture.reformat(
        format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG, threads=1
    )


def name_colours(context: VideoCodecContext) -> None:
    """Say in a file how its colours are coded: players guess by the size of the picture otherwise, readers BT.601."""
    context.colorspace = context.color_primaries = context.color_trc = _BT709
    context.color_range = ColorRange.MPEG
