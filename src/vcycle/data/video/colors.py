"""Color coding of videos: detected for sources, named in the files that are written.

Pictures are converted by matrix and range only. So a source's primaries and transfer (PQ and HLG are HDR) also hold for
the output, and are written there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import ColorRange

from vcycle.data.video.container import Decoder, VideoError, VideoFrame, file_stamp, opened, packets
from vcycle.data.video.orientation import Orientation

__all__ = [
    "BT709",
    "PICTURES",
    "Appearance",
    "Colors",
    "appearance_of",
    "check_convertible",
    "name_colors",
    "to_yuv",
]

_RGB, _UNNAMED = 0, 2
_BT709, _BT601 = 1, 6
_CONVERTIBLE = {1: "BT.709", 4: "FCC", 5: "BT.601", 6: "BT.601", 7: "SMPTE 240M", 9: "BT.2020"}
"""Matrices supported by FFmpeg's scaler."""
_HDR = (16, 18)  # PQ and HLG


class Colors(NamedTuple):
    """Color coding of a video, by the numbers of ITU-T H.273."""

    matrix: int
    primaries: int
    transfer: int

    @property
    def is_hdr(self) -> bool:
        """Whether 8 bits are too few, because the transfer is PQ or HLG."""
        return self.transfer in _HDR


BT709 = Colors(_BT709, _BT709, _BT709)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """How a player shows the pictures of a file, besides their size and orientation."""

    colors: Colors
    """As named in the file. For RGB, the matrix is the best one to write its pictures with."""

    guessed: bool = False
    """Whether the file names no matrix: ``colors`` then has the one that players guess by the picture size."""

    pixel_aspect: Fraction = Fraction(1)
    """Ratio of a pixel's width to its height in the displayed picture (sample aspect ratio)."""


PICTURES = Appearance(colors=BT709)
"""Colors of picture files: sRGB has the primaries of BT.709."""


def appearance_of(path: str) -> Appearance:
    """Return the appearance of a file's pictures; decodes the first.

    Raises:
        VideoError: If the file cannot be read, or no frame of it decodes.
    """
    file_stamp(path)
    with opened(path) as (container, stream):
        decoder = Decoder(stream)
        decoded = (frame for packet in packets(container, stream) for frame, _ in decoder.feed(packet))
        frame = next(decoded, None)
        if frame is None:
            raise VideoError(path, "no frame can be decoded")
        aspect = stream.sample_aspect_ratio or Fraction(1)
    if aspect <= 0:
        aspect = Fraction(1)
    found = Appearance(
        colors=Colors(int(frame.colorspace), int(frame.color_primaries), int(frame.color_trc)),
        pixel_aspect=1 / aspect if Orientation.of(frame).transposed else aspect,
    )
    return _completed(found, frame)


def _completed(found: Appearance, frame: VideoFrame) -> Appearance:
    """Fill in a matrix to write with, if the file names none."""
    matrix, primaries, transfer = found.colors
    if frame.format.is_rgb or matrix == _RGB:
        named = (_BT709 if number == _UNNAMED else number for number in (primaries, transfer))
        return replace(found, colors=Colors(_BT709, *named))
    if matrix != _UNNAMED:
        return found
    # As mpv and VLC do: anything larger than PAL is high definition.
    matrix = _BT709 if frame.width >= 1280 or frame.height > 576 else _BT601
    return replace(found, colors=found.colors._replace(matrix=matrix), guessed=True)


def check_convertible(path: str, colors: Colors) -> None:
    """Refuse colors that cannot be converted correctly.

    Raises:
        VideoError: names the matrix.
    """
    if colors.matrix not in _CONVERTIBLE:
        accepted = ", ".join(dict.fromkeys(_CONVERTIBLE.values()))
        raise VideoError(
            path,
            f"its colors use matrix {colors.matrix} of ITU-T H.273, which cannot be converted; "
            f"accepted: RGB, {accepted}",
        )


def to_yuv(picture: VideoFrame, colors: Colors = BT709, pixels: str = "yuv420p") -> VideoFrame:
    """Convert an RGB picture to YUV for encoding, in a file whose colors ``name_colors`` has set.

    Args:
        picture: RGB picture with 8 or 16 bits per channel.
        colors: Colors of the file.
        pixels: Its pixel format.
    """
    # Set explicitly: a decoded picture still carries the matrix and range of its source.
    return picture.reformat(format=pixels, dst_colorspace=colors.matrix, dst_color_range=ColorRange.MPEG, threads=1)


def name_colors(context: VideoCodecContext, colors: Colors = BT709, pixel_aspect: Fraction = Fraction(1)) -> None:
    """Set the color coding and the pixel aspect ratio of a file.

    If no matrix is set, players guess it by the picture size, and readers assume BT.601.
    """
    context.colorspace, context.color_primaries, context.color_trc = colors
    context.color_range = ColorRange.MPEG
    if pixel_aspect != 1:
        context.sample_aspect_ratio = pixel_aspect
