"""The dataset that answers requests by clips of video files, and what a sample is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vcycle.data.generators import KeyedDraws
from vcycle.data.grids import Grid, GridSampler
from vcycle.data.images import ImageSource
from vcycle.data.info import VideoInfo
from vcycle.data.layouts import VideoList
from vcycle.data.request import SampleRequest
from vcycle.data.source import FileSource, FrameSource
from vcycle.data.stream import permute
from vcycle.data.video import VideoError
from vcycle.data.views import Views
from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = [
    "Replacement",
    "Sample",
    "VideoDataset",
    "candidates",
    "first_readable",
    "refuse_number",
    "replacements",
    "stack_labels",
    "trying",
    "unreplaced",
]

_Read = TypeVar("_Read")

trying: ContextVar[Callable[[int], None]] = ContextVar("trying", default=lambda item: None)
"""Told of each item that is about to be read for a sample: which one, should it hang or kill the process."""

_replacing: ContextVar[bool] = ContextVar("replacing", default=True)

_ATTEMPTS = 16
_REPLACE = 1  # purpose of keyed draws; 0 is the sampling grid, and `generators` has another


def candidates(request: SampleRequest, size: int) -> Iterator[int]:
    """The item asked for, then keyed draws of others, none twice and none that is to be avoided.

    Args:
        request: What is asked of the dataset.
        size: Its length.
    """
    if request.index not in request.avoid:
        yield request.index  # before the others are drawn, which takes longer than reading a clip of an array
    attempts = np.arange(min(_ATTEMPTS, size))
    drawn = permute(attempts, size, *request.key, _REPLACE).tolist()
    others = [index for index in drawn if index != request.index]
    yield from (index for index in others[: _ATTEMPTS - 1] if index not in request.avoid)


def first_readable(
    request: SampleRequest, size: int, read: Callable[[int], _Read], *, what: str
) -> tuple[int, _Read, list[tuple[int, VideoError]]]:
    """Read the item asked for, or the first of its ``candidates`` that can be read; within ``unreplaced``, that alone.

    Args:
        request: What is asked of the dataset.
        size: Its length.
        read: Reads an item by index.
        what: What its items are and what they cannot be, for the message.

    Returns:
        Index of the item read, what was read, and the items tried before with their errors.

    Raises:
        DataError: If none of 16 (or of all of a smaller dataset) can be read.
        VideoError: Within ``unreplaced``, if the item cannot be read.
    """
    if not _replacing.get():
        return request.index, read(request.index), []
    failed: list[tuple[int, VideoError]] = []
    for index in candidates(request, size):
        trying.get()(index)
        try:
            return index, read(index), failed
        except VideoError as error:
            failed.append((index, error))
    raise DataError(f"{len(failed)} {what}, the last: {failed[-1][1]}")


@contextmanager
def unreplaced() -> Iterator[None]:
    """Have no bad item replaced for a while: for what asks for items of a part, and replaces them from the whole."""
    token = _replacing.set(False)
    try:
        yield
    finally:
        _replacing.reset(token)


def refuse_number(dataset: object, request: object) -> None:
    """Refuse what is no request: a number does not say which shape.

    Raises:
        DataError: naming what asks for one.
    """
    if not isinstance(request, SampleRequest):
        raise DataError(
            f"{type(dataset).__name__}[{request!r}]: it samples clips at the shape asked for, and a number names none: "
            "vcycle.loader(dataset, plan) gives batches, dataset[SampleRequest(index, shape, key)] a single clip"
        )


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
    """The model's input: uint8 ``(T, H, W, 3)``."""

    label: int | NDArray[np.float32] | Tensor
    """The target. Of recognition the class of the video, or of a multi-label set float32 ``(classes,)`` with 1 at each
    of its labels (of a clip to train on, at those that hold during it, where that is known) and 0 elsewhere. A tensor
    for tasks with dense targets, such as the clip at high resolution."""

    index: int
    """The video that the clip is of."""

    position: int
    """Position in the sample stream; -1 in evaluation."""

    fault: str | None = None
    """What is wrong with a clip that was usable all the same: some frames were missing."""

    replaced: tuple[Replacement, ...] = ()
    """Videos that were tried before this one and could not be read."""


def replacements(
    request: SampleRequest, index: int, failed: Sequence[tuple[int, VideoError]]
) -> tuple[Replacement, ...]:
    """What a sample says of the items that were tried before the one that was read.

    Args:
        request: What was asked for.
        index: The item that was read.
        failed: Those before it, each with its error, as ``first_readable`` gives them.
    """
    return tuple(
        Replacement(position=request.position, video=bad, replacement=index, path=error.path, cause=error.cause)
        for bad, error in failed
    )


def stack_labels(labels: Sequence[int | NDArray[np.float32] | Tensor]) -> Tensor:
    """Labels of a batch: int64 ``(B,)``; of a multi-label set, float32 ``(B, classes)``; tensors stacked."""
    if isinstance(labels[0], Tensor):
        return torch.stack([label for label in labels if isinstance(label, Tensor)])
    rows = [label for label in labels if isinstance(label, np.ndarray)]
    return torch.from_numpy(np.stack(rows)) if rows else torch.tensor(labels, dtype=torch.int64)


class VideoDataset(Dataset[Sample]):
    """Clips of labelled videos at any shape: ``dataset[SampleRequest(index, shape, key)]``.

    A video that cannot be read is replaced by another, drawn under the request's key and so the same in every
    run; the sample says so. Where the list limits a video to a span of time, its clips lie inside it.
    """

    samples_grids = True
    """Takes requests, and samples each clip at the shape asked for."""

    def __init__(
        self,
        videos: VideoList,
        grids: GridSampler,
        *,
        source: FrameSource | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Sample clips of a list of videos.

        Args:
            videos: Paths and labels.
            grids: Where clips are taken from.
            source: Where frames come from, such as a ``FrameCache``; by default the video files, or the
                pictures in the videos' folders.
            transform: Changes each clip to train on, uint8 ``(T, H, W, 3)`` in and out. What it draws from the
                global generators of Python, NumPy and torch, and from those that it holds, is keyed to the request;
                the clip may be shared memory and is not to be written to.
        """
        self.videos = videos
        self.grids = grids
        self.transform = transform
        plain = FileSource if videos.frame_rate is None else ImageSource
        self.source: FrameSource = plain(videos) if source is None else source
        self._draws = KeyedDraws()

    def __len__(self) -> int:
        """Number of videos."""
        return len(self.videos)

    def __getitem__(self, request: SampleRequest) -> Sample:
        """The clip that a request names, or that of a replacement.

        Raises:
            DataError: If 16 videos in a row (or all of a smaller dataset) cannot be read.
        """
        return self._sample(request, None)

    def load_into(self, request: SampleRequest, memory: Tensor) -> Sample:
        """The same, and where it can be so, its clip at the beginning of ``memory``, uint8.

        Raises:
            DataError: As ``dataset[request]`` does.
        """
        return self._sample(request, memory)

    def _sample(self, request: SampleRequest, memory: Tensor | None) -> Sample:
        refuse_number(self, request)
        index, sample, failed = first_readable(
            request,
            len(self),
            lambda item: self._read_for(request, item, memory),
            what="videos in a row cannot be read",
        )
        if not failed:
            return sample
        return replace(sample, replaced=replacements(request, index, failed))

    def _read_for(self, request: SampleRequest, item: int, memory: Tensor | None) -> Sample:
        """The clip of a video under a request's key."""
        info, first = self._part(item)
        grid = self.grids.train(request, info)
        clip, fault = self._read(item, info, first, grid, memory)
        label = self._label(item, first, grid)
        if (transform := self.transform) is not None:
            clip = self._draws.make(request, transform, lambda: transform(clip).contiguous())
        return Sample(clip=clip, label=label, index=item, position=request.position, fault=fault)

    def center(self, item: int, shape: Shape) -> Sample:
        """The clip for evaluation during training: the middle of a video, without randomness.

        Raises:
            VideoError: If the video cannot be read.
        """
        return self.view(item, Views(shape=shape), 0)

    def view(self, item: int, views: Views, clip: int, memory: Tensor | None = None) -> Sample:
        """A clip for evaluation, without randomness; its crops lie one after another, as further frames.

        Args:
            item: Which video.
            views: What is taken of each video.
            clip: Which of its clips, from 0.
            memory: As in ``load_into``.

        Raises:
            VideoError: If the video cannot be read.
        """
        info, first = self._part(item)
        grid = self.grids.view(views, clip, info)
        pixels, fault = self._read(item, info, first, grid, memory if views.crops == 1 else None)
        if views.crops > 1:
            pixels = _cut(pixels, views, memory)
        return Sample(clip=pixels, label=self._label(item), index=item, position=-1, fault=fault)

    def sample_bytes(self, shape: Shape) -> int:
        """Shared memory that a sample takes: uint8 of three colours."""
        return 3 * shape.voxels

    def name(self, item: int) -> str:
        """The path of a video, for messages."""
        return str(self.videos.path(item))

    def _part(self, item: int) -> tuple[VideoInfo, int]:
        """What clips of a video may show, and the number of its first frame in the whole."""
        whole = self.source.info(item)
        start, end = self.videos.span(item)
        if start <= 0 and end >= whole.duration:
            return whole, 0
        part, first = whole.window(start, end)
        if not part.frames:
            raise VideoError(
                str(self.videos.path(item)), f"{whole.duration:.2f} s long: over before its part from {start:g} s"
            )
        return part, first

    def _label(self, item: int, first: int = 0, grid: Grid | None = None) -> int | NDArray[np.float32]:
        """Of several labels those of the whole video or, of a clip to train on, those that hold during it."""
        if not self.videos.multi_label:
            return self.videos.labels[item]
        labels = self.videos.labels_of(item)
        if grid is not None and self.videos.label_spans:
            began = float(self.source.info(item).times[first]) if first else 0.0
            labels = self.videos.labels_within(item, began + grid.times[0], began + grid.times[-1])
        label = np.zeros(len(self.videos.classes), dtype=np.float32)
        label[list(labels)] = 1
        return label

    def _read(
        self, item: int, info: VideoInfo, first: int, grid: Grid, memory: Tensor | None
    ) -> tuple[Tensor, str | None]:
        frames = first + info.frame_at(grid.times)
        out = _placed(memory, (len(frames), *grid.crop[2:], 3))
        clip, filled = self.source.read(
            item,
            frames,
            resized=grid.resized,
            crop=grid.crop,
            antialias=self.grids.antialias,
            out=None if grid.flip else out,
        )
        if grid.flip:
            clip = clip.flip(2) if out is None else out.copy_(clip.flip(2))
        if filled == len(frames):  # what a decoder makes of that is grey
            raise VideoError(str(self.videos.path(item)), f"none of the {filled} frames of a clip can be decoded")
        fault = f"{self.videos.path(item)}: {filled} of {len(frames)} frames cannot be decoded" if filled else None
        return clip, fault


def _placed(memory: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """The beginning of the memory in a shape, where there is enough."""
    size = math.prod(shape)
    return None if memory is None or memory.numel() < size else memory[:size].view(shape)


def _cut(strip: Tensor, views: Views, memory: Tensor | None) -> Tensor:
    """The crops of a strip ``(T, H, W, 3)``, one after another: ``(J·T, h, w, 3)``, in ``memory`` if they fit."""
    frames, height, width = views.shape
    shape = (views.crops, frames, height, width, 3)
    placed = _placed(memory, shape)
    crops = torch.empty(shape, dtype=torch.uint8) if placed is None else placed
    rows, columns = strip.shape[1] - height, strip.shape[2] - width
    for number, crop in enumerate(crops):
        top, left = views.crop_at(number, rows), views.crop_at(number, columns)
        crop.copy_(strip[:, top : top + height, left : left + width])
    return crops.flatten(0, 1)
