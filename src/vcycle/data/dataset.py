"""Video datasets that answer sample requests, and the samples they return."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
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
from vcycle.data.request import SampleRequest, answer
from vcycle.data.source import FileSource, FrameSource, PartSource
from vcycle.data.stream import permute
from vcycle.data.video import VideoError
from vcycle.data.views import Views
from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = [
    "Note",
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
"""Called with each item before it is read for a sample, so that a hang or crash can be attributed."""

_replacing: ContextVar[bool] = ContextVar("replacing", default=True)

_ATTEMPTS = 16
_REPLACE = 1  # purpose of keyed draws; 0 is the sampling grid, and `generators` has another


def candidates(request: SampleRequest, size: int) -> Iterator[int]:
    """Yield the requested item, then keyed random others, without repeats or items to avoid.

    Args:
        request: The request to the dataset.
        size: Length of the dataset.
    """
    if request.index not in request.avoid:
        yield request.index  # before drawing the others, which takes longer than reading a clip from an array
    attempts = np.arange(min(_ATTEMPTS, size))
    drawn = permute(attempts, size, *request.key, _REPLACE).tolist()
    others = [index for index in drawn if index != request.index]
    yield from (index for index in others[: _ATTEMPTS - 1] if index not in request.avoid)


def first_readable(
    request: SampleRequest, size: int, read: Callable[[int], _Read], *, what: str
) -> tuple[int, _Read, list[tuple[int, VideoError]]]:
    """Read the requested item, or the first of its ``candidates`` that can be read; in ``unreplaced``, only the former.

    Args:
        request: The request to the dataset.
        size: Length of the dataset.
        read: Reads an item by index.
        what: What failed, for the message.

    Returns:
        Index of the item read, its value, and the items tried before with their errors.

    Raises:
        DataError: If none of 16 (or of all of a smaller dataset) can be read.
        VideoError: Within ``unreplaced``, if the item cannot be read.
        RuntimeError: If reading an item raises ``StopIteration``.
    """
    if not _replacing.get():
        return request.index, answer(f"item {request.index}", partial(read, request.index)), []
    failed: list[tuple[int, VideoError]] = []
    for index in candidates(request, size):
        trying.get()(index)
        try:
            return index, answer(f"item {index}", partial(read, index)), failed
        except VideoError as error:
            failed.append((index, error))
    raise DataError(f"{len(failed)} {what}, the last: {failed[-1][1]}")


@contextmanager
def unreplaced() -> Iterator[None]:
    """Disable replacement of bad items, for a caller that reads items of a part and replaces them from the whole."""
    token = _replacing.set(False)
    try:
        yield
    finally:
        _replacing.reset(token)


def refuse_number(dataset: object, request: object) -> None:
    """Refuse an index in place of a request: it has no shape.

    Raises:
        DataError: says how to request a clip.
    """
    if not isinstance(request, SampleRequest):
        raise DataError(
            f"{type(dataset).__name__}[{request!r}]: an index does not say at which shape to sample the clip: "
            "use vcycle.loader(dataset, plan) for batches, dataset[SampleRequest(index, shape, key)] for a single clip"
        )


class Note(NamedTuple):
    """A remark about a dataset, shown to the user once rather than for each clip."""

    about: str
    """The remark; shown once per dataset."""

    example: str
    """The first clip it applies to."""


class Replacement(NamedTuple):
    """A video that could not be read, and its replacement."""

    position: int
    """Position in the sample stream; -1 in evaluation."""

    video: int
    """Index of the video that could not be read."""

    replacement: int
    """Index of the replacement; -1 in evaluation, where there is none."""

    path: str
    """Path of the video that could not be read."""

    cause: str
    """Why it could not be read, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One clip of a dataset."""

    clip: Tensor
    """The model's input: uint8 ``(T, H, W, 3)``."""

    label: int | NDArray[np.float32] | Tensor
    """The target. For recognition, the class of the video or, for a multi-label set, float32 ``(classes,)`` with 1 for
    each of its labels (for a training clip, those that hold during it, if known) and 0 elsewhere. For tasks with dense
    targets, a tensor, such as the high-resolution clip."""

    index: int
    """The video of the clip."""

    position: int
    """Position in the sample stream; -1 in evaluation."""

    fault: str | None = None
    """Faults of a clip that was still usable: the file is truncated, or frames are missing."""

    replaced: tuple[Replacement, ...] = ()
    """Videos tried before this one that could not be read."""

    note: Note | None = None
    """A remark shown once for all clips like this one."""


def replacements(
    request: SampleRequest, index: int, failed: Sequence[tuple[int, VideoError]]
) -> tuple[Replacement, ...]:
    """Return the replacements that a sample records for items tried before the one that was read.

    Args:
        request: The request.
        index: The item that was read.
        failed: Items tried before, each with its error, from ``first_readable``.
    """
    return tuple(
        Replacement(position=request.position, video=bad, replacement=index, path=error.path, cause=error.cause)
        for bad, error in failed
    )


def stack_labels(labels: Sequence[int | NDArray[np.float32] | Tensor]) -> Tensor:
    """Stack labels: int64 ``(B,)``; for a multi-label set, float32 ``(B, classes)``; tensors are stacked as is."""
    if isinstance(labels[0], Tensor):
        return torch.stack([label for label in labels if isinstance(label, Tensor)])
    rows = [label for label in labels if isinstance(label, np.ndarray)]
    return torch.from_numpy(np.stack(rows)) if rows else torch.tensor(labels, dtype=torch.int64)


class VideoDataset(Dataset[Sample]):
    """Clips of labelled videos at any shape: ``dataset[SampleRequest(index, shape, key)]``.

    A video that cannot be read is replaced by another. The request's key determines it, so it is the same in every run,
    and the sample records it. If the list limits a video to a time span, its clips lie inside that span.
    """

    samples_grids = True
    """Takes requests, and samples each clip at the requested shape."""

    def __init__(
        self,
        videos: VideoList,
        grids: GridSampler,
        *,
        source: FrameSource | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Create a dataset from a list of videos.

        Args:
            videos: Paths and labels.
            grids: Sampling grids of the clips.
            source: Frame source, such as a ``FrameCache``; by default the video files, or the pictures in the videos'
                folders.
            transform: Applied to each training clip, uint8 ``(T, H, W, 3)`` in and out. Random draws from the global
                generators of Python, NumPy and torch, and from generators that it holds, are keyed to the request.
                The clip may be shared memory and must not be written to.
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

    def part(self, items: Sequence[int]) -> "VideoDataset":
        """Return a dataset of these videos alone, in this order."""
        videos, source = self.videos.part(items), PartSource(self.source, items)
        return VideoDataset(videos, self.grids, source=source, transform=self.transform)

    def __getitem__(self, request: SampleRequest) -> Sample:
        """Return the clip of a request, or of its replacement.

        Raises:
            DataError: If 16 videos in a row (or all of a smaller dataset) cannot be read.
        """
        return self._sample(request, None)

    def load_into(self, request: SampleRequest, memory: Tensor) -> Sample:
        """Return the same sample, its clip at the beginning of ``memory``, uint8, if possible.

        Raises:
            DataError: For the reasons of ``dataset[request]``.
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
        """Read the clip of a video under a request's key."""
        info, first = self._part(item)
        grid = self.grids.train(request, info)
        clip, fault = self._read(item, info, first, grid, memory)
        label = self._label(item, first, grid)
        if (transform := self.transform) is not None:
            clip = self._draws.make(request, transform, lambda: transform(clip).contiguous())
        note = self._note(item, info, grid)
        return Sample(clip=clip, label=label, index=item, position=request.position, fault=fault, note=note)

    def center(self, item: int, shape: Shape) -> Sample:
        """Return the deterministic center clip of a video, for evaluation during training.

        Raises:
            VideoError: If the video cannot be read.
        """
        return self.view(item, Views(shape=shape), 0)

    def view(self, item: int, views: Views, clip: int, memory: Tensor | None = None) -> Sample:
        """Return a deterministic clip for evaluation; its crops follow each other as further frames.

        Args:
            item: Index of the video.
            views: The views of each video.
            clip: Number of the clip, from 0.
            memory: See ``load_into``.

        Raises:
            VideoError: If the video cannot be read.
        """
        info, first = self._part(item)
        grid = self.grids.view(views, clip, info)
        pixels, fault = self._read(item, info, first, grid, memory if views.crops == 1 else None)
        if views.crops > 1:
            pixels = _cut(pixels, views, memory)
        note = self._note(item, info, grid)
        return Sample(clip=pixels, label=self._label(item), index=item, position=-1, fault=fault, note=note)

    def _note(self, item: int, info: VideoInfo, grid: Grid) -> Note | None:
        """Return a remark if the clip is longer than its video."""
        if not grid.short:
            return None
        shown = {"hold": "their last frame is held", "loop": "they are looped"}[self.grids.short]
        return Note(
            f"{self.videos.source}: videos shorter than a clip at its stride: {shown} (sampling.short=hold or loop)",
            f"{self.videos.path(item)}, {info.duration:.2f} s",
        )

    def sample_bytes(self, shape: Shape) -> int:
        """Return the shared memory that a sample needs, in bytes: uint8, three channels."""
        return 3 * shape.voxels

    def name(self, item: int) -> str:
        """Return the path of a video, for messages."""
        return str(self.videos.path(item))

    def _part(self, item: int) -> tuple[VideoInfo, int]:
        """Return the part of a video that clips may show, and the number of its first frame in the whole video."""
        whole = self.source.info(item)
        start, end = self.videos.span(item)
        if start <= 0 and end >= whole.duration:
            return whole, 0
        part, first = whole.window(start, end)
        if not part.frames:
            raise VideoError(
                str(self.videos.path(item)), f"{whole.duration:.2f} s long: ends before its span from {start:g} s"
            )
        return part, first

    def _label(self, item: int, first: int = 0, grid: Grid | None = None) -> int | NDArray[np.float32]:
        """Return the labels of the whole video or, for a multi-label training clip, those that hold during it."""
        if not self.videos.multi_label:
            return self.videos.labels[item]
        labels = self.videos.labels_of(item)
        if grid is not None and self.videos.label_spans:
            began = float(self.source.info(item).times[first]) if first else 0.0
            labels = self.videos.labels_within(item, began + grid.times.min(), began + grid.times.max())
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
        if filled == len(frames):  # the decoder's output is grey then
            raise VideoError(str(self.videos.path(item)), f"none of the {filled} frames of the clip can be decoded")
        faults = [info.incomplete, f"{filled} of {len(frames)} frames cannot be decoded" if filled else ""]
        told = "; ".join(fault for fault in faults if fault)
        return clip, f"{self.videos.path(item)}: {told}" if told else None


def _placed(memory: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """Return the beginning of the memory as a tensor of the shape; None if it is too small."""
    size = math.prod(shape)
    return None if memory is None or memory.numel() < size else memory[:size].view(shape)


def _cut(strip: Tensor, views: Views, memory: Tensor | None) -> Tensor:
    """Cut a strip ``(T, H, W, 3)`` into consecutive crops: ``(J·T, h, w, 3)``, in ``memory`` if they fit."""
    frames, height, width = views.shape
    shape = (views.crops, frames, height, width, 3)
    placed = _placed(memory, shape)
    crops = torch.empty(shape, dtype=torch.uint8) if placed is None else placed
    rows, columns = strip.shape[1] - height, strip.shape[2] - width
    for number, crop in enumerate(crops):
        top, left = views.crop_at(number, rows), views.crop_at(number, columns)
        crop.copy_(strip[:, top : top + height, left : left + width])
    return crops.flatten(0, 1)
