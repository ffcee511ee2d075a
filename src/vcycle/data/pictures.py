"""Decoding single picture files with FFmpeg: exact for PNG, and faster than Pillow.

No demuxer is used: it would double the time.
"""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts.files import PICTURES
from vcycle.data.locations import is_url
from vcycle.data.video import VideoError

# After vcycle.data.video, whose import error says how to install PyAV.
import av  # isort: skip
from av import CodecContext, Packet, VideoCodecContext, VideoFrame  # isort: skip

__all__ = ["PICTURE_SUFFIXES", "decode_picture", "encode_png", "holds_pictures", "picture_size", "read_picture"]

PICTURE_SUFFIXES = PICTURES.suffixes

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_SIGNATURES = {_PNG: "png", _JPEG: "mjpeg", b"RIFF": "webp", b"BM": "bmp"}
_JPEG_END = b"\xff\xd9"
_JPEG_HEAD = 1 << 16  # beyond it lie only pictures with large profiles
_JPEG_TAIL = 4096  # some writers append a few bytes


def holds_pictures(path: str) -> bool:
    """Return whether a video is a folder of pictures or a single picture, rather than a video file."""
    return os.path.splitext(path)[1].lower() in PICTURE_SUFFIXES or (not is_url(path) and os.path.isdir(path))


def decode_picture(path: Path) -> VideoFrame:
    """Decode a picture to the decoder's native frame.

    Raises:
        VideoError: If the file is missing, damaged, truncated, or not a picture (by content).
    """
    data = _begin(path, None)
    codec = next((codec for start, codec in _SIGNATURES.items() if data.startswith(start)), None)
    if codec is None:
        raise VideoError(str(path), f"not a picture in PNG, JPEG, WebP or BMP ({len(data)} bytes)")
    # The decoder silently fills the missing part of a JPEG with grey.
    if codec == "mjpeg" and _JPEG_END not in data[-_JPEG_TAIL:]:
        raise VideoError(str(path), "the picture is truncated")
    try:
        decoder = cast(VideoCodecContext, CodecContext.create(codec, "r"))
        decoder.thread_count = 1
        decoder.options = {"err_detect": "crccheck+explode"}
        frame = (decoder.decode(Packet(data)) or decoder.decode(None))[0]
    except (av.error.FFmpegError, IndexError) as error:
        raise VideoError(str(path), f"the {codec} picture cannot be decoded") from error
    if frame.is_corrupt:
        raise VideoError(str(path), f"the {codec} picture is damaged")
    return frame


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Decode a picture to uint8 ``(H, W, 3)``, RGB.

    Raises:
        VideoError: For the reasons of ``decode_picture``.
    """
    return decode_picture(path).to_rgb(threads=1).to_ndarray().astype(np.uint8, copy=False)


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode uint8 ``(H, W, 3)``, RGB, as a PNG."""
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1)
    encoder.thread_count = 1
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
    return b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))


def picture_size(path: Path) -> tuple[int, int]:
    """Return the height and width of a picture; a PNG or JPEG is not decoded for it.

    Raises:
        VideoError: For the reasons of ``decode_picture``.
    """
    head = _begin(path, 24)
    if head.startswith(_PNG) and len(head) == 24:
        return int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")
    if head.startswith(_JPEG) and (size := _jpeg_size(_begin(path, _JPEG_HEAD))) is not None:
        return size
    frame = decode_picture(path)
    return frame.height, frame.width


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return the height and width in a JPEG's frame header; None if that is not in these bytes."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        at += 2 + length
    return None


def _begin(path: Path, count: int | None) -> bytes:
    """Return the first bytes of a file, or all of it."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise VideoError(str(path), "no file")
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise VideoError(str(path), error.strerror or str(error)) from error
