"""Generates benchmark videos: moving textures that cost as much to encode and decode as real videos."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from vcycle.data import VideoList
from vcycle.utils.atomic import atomic_path
from vcycle.utils.folders import make_folder

__all__ = ["FRAMES", "SIZE", "generated_videos", "pictures"]

SIZE = (256, 340)
"""Height and width of the pictures, as Kinetics is commonly stored."""

FRAMES = 300
RATE = 30

_GROUP = 250
_MARGIN = 64  # how far the camera moves over the scene
_GRAIN = 6.0  # standard deviation of the sensor's noise, in levels


def generated_videos(
    folder: Path, count: int, *, frames: int = FRAMES, progress: Callable[[int, int], None] = lambda *_: None
) -> VideoList:
    """Write ``count`` files of ten seconds, 340x256 at 30 frames a second, H.264 with a keyframe every 250 frames.

    Files that are there already are kept. The same number gives the same pictures.

    Raises:
        VcycleError: if the folder cannot be made.
    """
    make_folder(folder)
    names = [f"{number:03d}-{frames}.mp4" for number in range(count)]
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(_write, folder / name, number, frames) for number, name in enumerate(names)]
        for done, job in enumerate(jobs, 1):
            job.result()
            progress(done, count)
    return VideoList(root=folder, paths=names, labels=[0] * count, classes=("any",), source=folder)


def _write(path: Path, number: int, frames: int) -> None:
    if path.exists():
        return
    with atomic_path(path, durable=False) as partial, av.open(str(partial), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "medium", "g": str(_GROUP)})
        stream.height, stream.width = SIZE
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for picture in pictures(number, frames):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            container.mux(stream.encode(frame.reformat(format="yuv420p", threads=1)))
        container.mux(stream.encode())


def pictures(number: int, count: int) -> Iterator[NDArray[np.uint8]]:
    """The first pictures of a video, uint8 ``(height, width, 3)``; x264 may code them differently each time."""
    scene = _Scene(number)
    return map(scene.picture, range(count))


class _Scene:
    """A textured background under a moving camera, textured discs before it, and grain."""

    def __init__(self, number: int) -> None:
        self._random = np.random.default_rng(number)
        height, width = SIZE
        self._background = _texture(self._random, height + 2 * _MARGIN, width + 2 * _MARGIN)
        self._discs = [_texture(self._random, 2 * radius, 2 * radius) for radius in range(12, 52, 3)]
        self._grain = self._random.normal(0, _GRAIN, (4, height, width, 1))
        self._phases = self._random.uniform(0, 2 * math.pi, (len(self._discs) + 1, 2))
        self._speeds = self._random.uniform(0.02, 0.12, (len(self._discs) + 1, 2))

    def picture(self, number: int) -> NDArray[np.uint8]:
        """The next frame; call in order."""
        height, width = SIZE
        ways = np.sin(self._phases + self._speeds * number)  # from -1 to 1
        top, left = np.rint(_MARGIN * (1 + ways[0])).astype(int)
        picture = self._background[top : top + height, left : left + width].copy()
        for disc, way in zip(self._discs, ways[1:], strict=True):
            side = len(disc)
            y, x = np.rint((1 + way) / 2 * (height - side, width - side)).astype(int)
            part = picture[y : y + side, x : x + side]
            np.copyto(part, disc, where=_round(side))
        grain = self._grain[number % len(self._grain)]
        shift = int(self._random.integers(width))
        return np.asarray(np.clip(picture + np.roll(grain, shift, axis=1), 0, 255), dtype=np.uint8)


def _texture(random: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """Noise of several sizes, the coarse the strongest, ``(height, width, 3)`` from 0 to 255."""
    total = np.zeros((height, width, 3))
    for cell in (64, 32, 16, 8, 4, 2):
        rows, columns = -(-height // cell) + 1, -(-width // cell) + 1
        coarse = random.normal(0, cell**0.6, (rows, columns, 3))
        total += _enlarged(_enlarged(coarse, cell, height).swapaxes(0, 1), cell, width).swapaxes(0, 1)
    return np.asarray(np.clip(128 + total * (40 / total.std()), 0, 255))


def _enlarged(values: NDArray[np.float64], factor: int, length: int) -> NDArray[np.float64]:
    """Rows between rows, linearly."""
    at = np.arange(length) / factor
    low = at.astype(int)
    share = (at - low)[:, None, None]
    return np.asarray(values[low] * (1 - share) + values[low + 1] * share)


def _round(side: int) -> NDArray[np.bool_]:
    """A disc that fills a square, ``(side, side, 1)``."""
    away = np.arange(side) - (side - 1) / 2
    return np.asarray((away[:, None] ** 2 + away**2 <= (side / 2) ** 2)[..., None])
