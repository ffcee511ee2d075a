"""Readers of clips to compare: a plain PyAV loop, other decoders, and vcycle's sources."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, NamedTuple

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from vcycle.data import FrameSource, VideoInfo, VideoList
from vcycle.data.grids import Grid, GridSampler
from vcycle.data.request import SampleRequest
from vcycle.plan import Shape

__all__ = ["OTHERS", "PLAIN", "Ask", "Read", "asks", "other_decoders", "plain_loop", "source_reader"]

PLAIN = "plain loop"
"""Name of the reference reader."""

OTHERS = ("decord2", "torchcodec")
"""Decoders that are compared where they are installed, by distribution."""


class Ask(NamedTuple):
    """One clip request, the same for every reader."""

    item: int
    path: str
    info: VideoInfo
    grid: Grid
    frames: NDArray[np.int64]
    """Indices of the frames in the grid."""


Read = Callable[[Ask], Any]
"""Reads a clip, uint8 ``(T, H, W, 3)``."""


def asks(videos: VideoList, source: FrameSource, grids: GridSampler, shape: Shape, count: int) -> list[Ask]:
    """Random clips, identical on every run, from each video in turn."""
    made = []
    for number in range(count):
        item = number % len(videos)
        info = source.info(item)
        grid = grids.train(SampleRequest(item, shape, (0, 0, number)), info)
        made.append(Ask(item, str(videos.path(item)), info, grid, info.frame_at(grid.times)))
    return made


def source_reader(source: FrameSource, *, antialias: bool = True) -> Read:
    """A reader through a vcycle source, as a dataset uses it."""

    def read(ask: Ask) -> torch.Tensor:
        grid = ask.grid
        return source.read(ask.item, ask.frames, resized=grid.resized, crop=grid.crop, antialias=antialias).pixels

    return read


def plain_loop(ask: Ask) -> NDArray[np.uint8]:
    """A typical PyAV loop: seek, decode up to the last requested frame, convert and resize the requested ones."""
    height, width = ask.grid.resized
    times = ask.info.times[ask.frames]
    found: dict[int, NDArray[Any]] = {}
    with av.open(ask.path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        tick = float(stream.time_base or 1)
        first = stream.start_time or 0
        wanted = [first + round(time / tick) for time in times.tolist()]
        missing = set(wanted)
        container.seek(wanted[0], stream=stream)
        for frame in container.decode(stream):
            if frame.pts is not None and frame.pts in missing:
                missing.discard(frame.pts)
                found[frame.pts] = frame.to_ndarray(format="rgb24", width=width, height=height, threads=1)
                if not missing:
                    break
    return _cropped(np.stack([found[pts] for pts in wanted]), ask)


def other_decoders() -> tuple[dict[str, Read], dict[str, str]]:
    """Other decoders that work on this machine, and the reason for each that does not."""
    found: dict[str, Read] = {}
    faults: dict[str, str] = {}
    for name, make in zip(OTHERS, (_decord, _torchcodec), strict=True):
        try:
            importlib.metadata.version(name)
            found[name] = make()
        except importlib.metadata.PackageNotFoundError:
            faults[name] = "is not installed"
        except (ImportError, OSError, RuntimeError) as error:
            faults[name] = "does not load: " + (str(error).strip().splitlines() or [type(error).__name__])[0]
    return found, faults


def _decord() -> Read:
    decord: Any = importlib.import_module("decord")

    def read(ask: Ask) -> NDArray[np.uint8]:
        height, width = ask.grid.resized
        reader = decord.VideoReader(ask.path, width=width, height=height, num_threads=1)
        return _cropped(reader.get_batch(ask.frames.tolist()).asnumpy(), ask)

    return read


def _torchcodec() -> Read:
    decoders: Any = importlib.import_module("torchcodec.decoders")

    def read(ask: Ask) -> torch.Tensor:
        # Its fastest: no pass over the file first, and a resize outside, which costs less than its own.
        reader = decoders.VideoDecoder(ask.path, num_ffmpeg_threads=1, seek_mode="approximate")
        pixels = reader.get_frames_at(ask.frames.tolist()).data
        top, left, height, width = ask.grid.crop
        resized = interpolate(pixels, size=ask.grid.resized, mode="bilinear", antialias=True)
        return resized[..., top : top + height, left : left + width].permute(0, 2, 3, 1).contiguous()

    return read


def _cropped(pixels: NDArray[np.uint8], ask: Ask) -> NDArray[np.uint8]:
    top, left, height, width = ask.grid.crop
    return np.ascontiguousarray(pixels[:, top : top + height, left : left + width])
