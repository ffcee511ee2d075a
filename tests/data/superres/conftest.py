"""Clips of pictures, written as files."""

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def encoded(picture: Pixels, codec: str, pix_fmt: str) -> bytes:
    encoder = av.CodecContext.create(codec, "w")
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base = pix_fmt, 1
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=pix_fmt)
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


@pytest.fixture(scope="session")
def png() -> Callable[[Pixels], bytes]:
    return lambda picture: encoded(picture, "png", "rgb24")


@pytest.fixture(scope="session")
def jpeg() -> Callable[[Pixels], bytes]:
    return lambda picture: encoded(picture, "mjpeg", "yuvj444p")


@pytest.fixture(scope="session")
def write_clip(png: Callable[[Pixels], bytes]) -> Callable[..., Path]:
    """Writes frames ``(T, H, W, 3)`` as numbered PNG files."""

    def write(folder: Path, frames: Pixels, *, name: str = "{:08d}.png", first: int = 0) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate(frames, first):
            (folder / name.format(number)).write_bytes(png(picture))
        return folder

    return write


@pytest.fixture(scope="session")
def noise() -> Callable[..., Pixels]:
    """Frames of noise: ``noise(T, H, W, seed)``."""

    def draw(frames: int, height: int, width: int, seed: int = 0) -> Pixels:
        return np.random.default_rng(seed).integers(256, size=(frames, height, width, 3), dtype=np.uint8)

    return draw
