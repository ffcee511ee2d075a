"""One picture file, through FFmpeg's decoders: exact for PNG, and faster than Pillow.

Without a demuxer, which would take as long again.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from vcycle.data.video import VideoError

# After vcycle.data.video, which says how to install it.
import av  # isort: skip
from av import CodecContext, Packet, VideoCodecContext, VideoFrame  # isort: skip

__all__ = ["PICTURE_SUFFIXES", "decode_picture", "picture_size", "read_picture"]

PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp"})

_PNG = b"\x89PNG\r\n\x1a\n"
_SIGNATURES = {_PNG: "png", b"\xff\xd8\xff": "mjpeg", b"RIFF": "webp", b"BM": "bmp"}
_JPEG_END = b"\xff\xd9"
_JPEG_TAIL = 4096  # some writers append a few bytes


def decode_picture(path: Path) -> VideoFrame:
    """Decode a picture, as the decoder gives it.

    Raises:
        VideoError: If the file is missing, damaged, cut short, or no picture (the content decides).
    """
    data = _begin(path, None)
    codec = next((codec for start, codec in _SIGNATURES.items() if data.startswith(start)), None)
    if codec is None:
        raise VideoError(str(path), f"not a picture in PNG, JPEG, WebP or BMP ({len(data)} bytes)")
    # The decoder fills what is missing of a JPEG with grey and says nothing.
    if codec == "mjpeg" and _JPEG_END not in data[-_JPEG_TAIL:]:
        raise VideoError(str(path), "the picture is cut short")
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
        VideoError: As ``decode_picture``.
    """
    return decode_picture(path).to_rgb(threads=1).to_ndarray().astype(np.uint8, copy=False)


def picture_size(path: Path) -> tuple[int, int]:
    """Height and width of a picture; of a PNG without decoding it.

    Raises:
        VideoError: As ``decode_picture``.
    """
    head = _begin(path, 24)
    if head.startswith(_PNG) and len(head) == 24:
        return int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")
    frame = decode_picture(path)
    return frame.height, frame.width


def _begin(path: Path, count: int | None) -> bytes:
    """The first bytes of a file, or all of it."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise VideoError(str(path), "no file")
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise VideoError(str(path), error.strerror or str(error)) from error
