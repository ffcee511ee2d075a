"""Map-style datasets that answer requests: clips of video files, or of any dataset of whole clips."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vcycle.data.grids import Grid, GridSampler
from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.request import SampleRequest
from vcycle.data.source import FileSource, FrameSource, resample
from vcycle.data.stream import permute
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = ["Layout", "Replacement", "ResampledDataset", "Sample", "VideoDataset"]

Layout = Literal["CTHW", "TCHW", "THWC"]

_ATTEMPTS = 16
_REPLACE = 1  # purposes of keyed draws; 0 is the sampling grid
_USER = 2


class Replacement(NamedTuple):
    """A video that could not be read, and the one that was used instead."""

    position: int
    """Position in the sample stream; -1 in evaluation."""

    video: int
    """Index of the video that could not be read."""

    replacement: int
    """Index of the video used instead; -1 in evaluation, where none is."""

    path: str
    """Path of the video that could not be read."""

    cause: str
    """Why it could not be read, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One clip, as a dataset gives it."""

    clip: Tensor
    """uint8 ``(T, H, W, 3)``."""

    label: int
    """Class of the video that the clip is of."""

    index: int
    """The video that the clip is of."""

    position: int
    """Position in the sample stream; -1 in evaluation."""

    fault: str | None = None
    """What is wrong with a clip that was usable all the same: some frames were missing."""

    replaced: tuple[Replacement, ...] = ()
    """Videos that were tried before this one and could not be read."""


class VideoDataset(Dataset[Sample]):
    """Clips of labelled videos at any shape: ``dataset[SampleRequest(index, shape, key)]``.

    A video that cannot be read is replaced by another, drawn under the request's key and so the same in every
    run; the sample says so.
    """

    samples_grids = True
    """Takes requests, and samples each clip at the shape asked for."""

    def __init__(self, videos: VideoList, grids: GridSampler, *, source: FrameSource | None = None) -> None:
        """Sample clips of a list of videos.

        Args:
            videos: Paths and labels.
            grids: Where clips are taken from.
            source: Where frames come from; the video files by default, or a ``FrameCache`` of them.
        """
        self.videos = videos
        self.grids = grids
        self.source = FileSource(videos) if source is None else source

    def __len__(self) -> int:
        """Number of videos."""
        return len(self.videos)

    def __getitem__(self, request: SampleRequest) -> Sample:
        """The clip that a request names, or that of a replacement.

        Raises:
            DataError: If 16 videos in a row (or all of a smaller dataset) cannot be read.
        """
        failed: list[VideoError] = []
        tried: list[int] = []
        for index in self._candidates(request):
            try:
                info = self.source.info(index)
                clip, fault = self._read(index, info, self.grids.train(request, info))
            except VideoError as error:
                failed.append(error)
                tried.append(index)
                continue
            replaced = tuple(
                Replacement(
                    position=request.position,
                    video=bad,
                    replacement=index,
                    path=error.path,
                    cause=error.cause,
                )
                for bad, error in zip(tried, failed, strict=True)
            )
            return Sample(
                clip=clip,
                label=self.videos.labels[index],
                index=index,
                position=request.position,
                fault=fault,
                replaced=replaced,
            )
        raise DataError(f"{len(failed)} videos in a row cannot be read, the last: {failed[-1]}")

    def center(self, item: int, shape: Shape) -> Sample:
        """The clip for evaluation: the middle of a video, without randomness.

        Raises:
            VideoError: If the video cannot be read.
        """
        info = self.source.info(item)
        clip, fault = self._read(item, info, self.grids.center(shape, info))
        return Sample(clip=clip, label=self.videos.labels[item], index=item, position=-1, fault=fault)

    def _candidates(self, request: SampleRequest) -> Iterator[int]:
        """The video asked for, then keyed draws of others, none twice."""
        yield request.index
        attempts = np.arange(min(_ATTEMPTS, len(self)))
        drawn = permute(attempts, len(self), *request.key, _REPLACE).tolist()
        yield from [index for index in drawn if index != request.index][: _ATTEMPTS - 1]

    def _read(self, item: int, info: VideoInfo, grid: Grid) -> tuple[Tensor, str | None]:
        frames = info.frame_at(grid.times)
        clip, filled = self.source.read(
            item, frames, resized=grid.resized, crop=grid.crop, antialias=self.grids.antialias
        )
        fault = f"{self.videos.path(item)}: {filled} of {len(frames)} frames cannot be decoded" if filled else None
        return (clip.flip(2) if grid.flip else clip), fault


class _Items(Sized, Protocol):
    def __getitem__(self, item: int, /) -> Any: ...


class ResampledDataset(Dataset[Any]):
    """Any map-style dataset of whole clips, resampled to the shapes asked for; itself untouched.

    An item is a clip, or a tuple or list whose first element is one; the rest passes through. The random
    choices that the dataset makes with Python's, NumPy's or torch's global generators are keyed too, so that
    they do not depend on workers or on a resume.
    """

    samples_grids = True
    """Takes requests, and resamples each clip to the shape asked for."""

    def __init__(self, dataset: _Items, grids: GridSampler, *, layout: Layout = "CTHW") -> None:
        """Wrap a dataset.

        Args:
            dataset: Anything with ``len`` and ``dataset[i]``.
            grids: Where clips are taken from; a stride counts the dataset's own frames.
            layout: Order of the clip's frames T, rows H, columns W and channels C, kept in the result.
        """
        if layout not in ("CTHW", "TCHW", "THWC"):
            raise DataError(f"layout={layout!r}: CTHW, TCHW or THWC is accepted")
        self.dataset = dataset
        self.grids = grids
        self.layout = layout
        self._to_thwc = tuple(layout.index(axis) for axis in "THWC")
        self._back = tuple("THWC".index(axis) for axis in layout)

    def __len__(self) -> int:
        """Length of the wrapped dataset."""
        return len(self.dataset)

    def __getitem__(self, request: SampleRequest) -> Any:
        """The item that a request names, its clip resampled.

        Raises:
            DataError: If the item has no clip tensor of four dimensions.
        """
        with _keyed_global_generators(request):
            item = self.dataset[request.index]
        if isinstance(item, Tensor):
            return self._resample(item, request)
        if isinstance(item, tuple | list) and item and isinstance(item[0], Tensor):
            rest = [self._resample(item[0], request), *item[1:]]
            return type(item)(*rest) if hasattr(item, "_fields") else type(item)(rest)
        raise DataError(f"item {request.index}: a clip tensor, or a tuple that starts with one, is accepted")

    def _resample(self, clip: Tensor, request: SampleRequest) -> Tensor:
        if clip.ndim != 4:
            raise DataError(f"item {request.index}: a clip of shape {tuple(clip.shape)} is not {self.layout}")
        clip = clip.permute(self._to_thwc)
        info = VideoInfo.uniform(*clip.shape[:3])
        grid = self.grids.train(request, info)
        frames = torch.from_numpy(info.frame_at(grid.times))
        clip = resample(clip[frames], grid.resized, grid.crop, antialias=self.grids.antialias)
        return (clip.flip(2) if grid.flip else clip).permute(self._back).contiguous()


@contextmanager
def _keyed_global_generators(request: SampleRequest) -> Iterator[None]:
    """Key the global generators of Python, NumPy and torch (CPU) to a request, for a while."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seeds = request.generator(_USER).integers(2**32, size=3).tolist()
    random.seed(seeds[0])
    np.random.seed(seeds[1])
    torch.default_generator.manual_seed(seeds[2])  # torch.manual_seed would reset the accelerator's as well
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
