"""How the colours of a video are coded, and the colours of videos that are written: named as they are coded.

Pictures are converted by their matrix and their range alone. So what a file says of its primaries and its transfer (PQ
and HLG are HDR) holds for what is written as well, and is written there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import ColorRange

from vcycle.data.video.container import Decoder, VideoError, VideoFrame, file_status, opened, packets
from vcycle.data.video.orientation import Orientation

__all__ = [
    "BT709",
    "PICTURES",
    "Appearance",
    "Colours",
    "appearance_of",
    "check_convertible",
    "name_colours",
    "to_yuv",
]

_RGB, _UNNAMED = 0, 2
_BT709, _BT601 = 1, 6
_CONVERTIBLE = {1: "BT.709", 4: "FCC", 5: "BT.601", 6: "BT.601", 7: "SMPTE 240M", 9: "BT.2020"}
"""Matrices that FFmpeg's scaler knows."""
_HDR = (16, 18)  # PQ and HLG


class Colours(NamedTuple):
    """How the colours of a video are coded, by the numbers of ITU-T H.273."""

    matrix: int
    primaries: int
    transfer: int

    @property
    def is_hdr(self) -> bool:
        """Whether 8 bits are too few: the transfer is PQ or HLG."""
        return self.transfer in _HDR


BT709 = Colours(_BT709, _BT709, _BT709)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """How a player shows the pictures of a file, beside their size and orientation."""

    colours: Colours
    """As the file names them. Of RGB, the matrix is that which its pictures are best written by."""

    guessed: bool = False
    """The file does not name the matrix: ``colours`` has that which players guess by the size of the picture."""

    pixel_aspect: Fraction = Fraction(1)
    """Width of a pixel to its height, of the displayed picture (the sample aspect ratio)."""


PICTURES = Appearance(colours=BT709)
"""Of pictures in files of their own: sRGB has the primaries of BT.709."""


def appearance_of(path: str) -> Appearance:
    """What a file says of its pictures, decoding the first.

    Raises:
        VideoError: If the file cannot be read, or no frame of it decodes.
    """
    file_status(path)
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
        colours=Colours(int(frame.colorspace), int(frame.color_primaries), int(frame.color_trc)),
        pixel_aspect=1 / aspect if Orientation.of(frame).transposed else aspect,
    )
    return _completed(found, frame)


def _completed(found: Appearance, frame: VideoFrame) -> Appearance:
    """With a matrix to write by, where the file names none."""
    matrix, primaries, transfer = found.colours
    if frame.format.is_rgb or matrix == _RGB:
        named = (_BT709 if number == _UNNAMED else number for number in (primaries, transfer))
        return replace(found, colours=Colours(_BT709, *named))
    if matrix != _UNNAMED:
        return found
    # As mpv and VLC do: what is larger than a picture of PAL is high definition.
    matrix = _BT709 if frame.width >= 1280 or frame.height > 576 else _BT601
    return replace(found, colours=found.colours._replace(matrix=matrix), guessed=True)


def check_convertible(path: str, colours: Colours) -> None:
    """Refuse colours that would come out as others.

    Raises:
        VideoError: naming the matrix.
    """
    if colours.matrix not in _CONVERTIBLE:
        accepted = ", ".join(dict.fromkeys(_CONVERTIBLE.values()))
        raise VideoError(
            path,
            f"its colours are coded by matrix {colours.matrix} of ITU-T H.273, which cannot be converted; "
            f"accepted: RGB, {accepted}",
        )


def to_yuv(picture: VideoFrame, colours: Colours = BT709, pixels: str = "yuv420p") -> VideoFrame:
    """A picture in RGB as it is encoded, in a file whose colours ``name_colours`` has named.

    Args:
        picture: In RGB of 8 or 16 bits.
        colours: Those of the file.
        pixels: Its pixel format.
    """
    # Said, as a picture that was decoded still has the matrix and the range of its source with it.
    return picture.reformat(format=pixels, dst_colorspace=colours.matrix, dst_color_range=ColorRange.MPEG, threads=1)


def name_colours(context: VideoCodecContext, colours: Colours = BT709, pixel_aspect: Fraction = Fraction(1)) -> None:
    """Say in a file how its colours are coded and how wide its pixels are.

    Where no matrix is named, players guess it by the size of the picture, and readers take BT.601.
    """
    context.colorspace, context.color_primaries, context.color_trc = colours
    context.color_range = ColorRange.MPEG
    if pixel_aspect != 1:
        context.sample_aspect_ratio = pixel_aspect
