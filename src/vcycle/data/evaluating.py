"""Loader for evaluation views; its order and batches do not depend on the number of ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from vcycle.data.batch import Batch, collate_any, pin
from vcycle.data.composed import ComposedDataset, looked_through
from vcycle.data.dataset import Replacement, Sample, VideoDataset
from vcycle.data.loading import TIMEOUT, Loader
from vcycle.data.pool.work import Room
from vcycle.data.request import answer
from vcycle.data.video import VideoError
from vcycle.data.views import Views
from vcycle.errors import DataError
from vcycle.plan import rank_slice

__all__ = ["evaluation_loader"]


def evaluation_loader(
    dataset: VideoDataset | Subset[Sample] | ConcatDataset[Sample],
    views: Views,
    *,
    batch: int,
    workers: int = 0,
    timeout: float = TIMEOUT,
    prefetch: int | None = None,
    rank: int = 0,
    world: int = 1,
    pin_memory: bool = False,
) -> Loader:
    """Load the views of every video once, in order; each rank loads a contiguous share.

    A batch holds whole videos if the views of one fit, else an equal part of one video. The composition of a batch does
    not depend on the number of ranks, so neither does the model's arithmetic.

    ``Batch.indices`` holds the video of each view. Views that cannot be read, and those that hang or kill a worker, are
    left out of their batch and listed in ``Batch.replaced``; so a batch may be empty.

    Args:
        dataset: The videos, or a ``Subset`` or ``ConcatDataset`` of them.
        views: The views of each video.
        batch: Maximum number of views in a batch; exceeded if a single clip has more crops.
        workers: This and the arguments below are those of ``loader``.
        timeout: Seconds for one clip with its crops.
        prefetch: Minimum number of clips to load ahead, with their crops.
        rank: This rank.
        world: Number of ranks; may exceed the number of videos.
        pin_memory: Whether to put batches in pinned memory.

    Raises:
        DataError: If the dataset has no videos.
    """
    pin_memory = pin_memory and torch.cuda.is_available()
    found = looked_through(dataset)
    if not getattr(found, "samples_grids", False):
        raise DataError(
            f"{type(dataset).__name__} has no evaluation views: give a VideoDataset, or a Subset or ConcatDataset"
        )
    work = _Evaluation(found, views, batch, rank=rank, world=world, pinned=pin_memory)
    return Loader(work, workers=workers, timeout=timeout, prefetch=prefetch, pin_memory=pin_memory)


@dataclass(frozen=True, slots=True)
class _Clip:
    """A clip of a video with its crops, and why it failed if reading it hung or killed a process."""

    item: int
    number: int
    cause: str | None = None


class _Evaluation:
    """Work of an evaluation; a task is one clip with all of its crops, which are decoded together."""

    def __init__(
        self,
        dataset: VideoDataset | ComposedDataset,
        views: Views,
        batch: int,
        *,
        rank: int,
        world: int,
        pinned: bool,
    ) -> None:
        self._dataset = dataset
        self._views = views
        clips = max(1, batch // views.crops)
        self._together = max(1, clips // views.clips)
        """Videos per batch, if a batch holds whole videos."""
        self._parts = -(-views.clips // clips)
        """Batches per video, if it does not."""
        self._groups = rank_slice(-(-len(dataset) // self._together), 1, rank, world)
        self._pinned = pinned

    def __len__(self) -> int:
        return len(self._groups) * self._parts

    def batches(self) -> Iterator[list[_Clip]]:
        clips, parts = self._views.clips, self._parts
        for group in self._groups:
            first = group * self._together
            items = range(first, min(first + self._together, len(self._dataset)))
            for part in range(parts):
                numbers = range(clips * part // parts, clips * (part + 1) // parts)
                yield [_Clip(item, number) for item in items for number in numbers]

    def load(self, task: _Clip, memory: Tensor | None) -> Sample | Replacement:
        if task.cause is not None:
            return self._left_out(task.item, self._dataset.name(task.item), task.cause)
        try:
            return answer(
                self._dataset.name(task.item),
                lambda: self._dataset.view(task.item, self._views, task.number, memory),
            )
        except VideoError as error:
            return self._left_out(task.item, error.path, error.cause)

    def instead(self, task: _Clip, cause: str, item: int | None) -> _Clip:
        return _Clip(task.item, task.number, cause)

    def name(self, task: _Clip) -> str:
        return self._dataset.name(task.item)

    def sample_bytes(self, task: _Clip) -> int:
        return self._views.crops * self._dataset.sample_bytes(self._views.shape)

    def room(self) -> Room:
        views, videos = self._views, min(self._together, max(len(self._dataset), 1))
        most = videos * -(-views.clips // self._parts)
        fewest = videos * (views.clips // self._parts)
        bytes_each = views.crops * self._dataset.sample_bytes(views.shape)
        return Room(batch_bytes=most * bytes_each, fewest=fewest)

    def collate(self, items: list[Any], memory: Tensor | None) -> Any:
        batch = _by_view(collate_any(items, memory), self._views.crops)
        return pin(batch) if self._pinned else batch

    def _left_out(self, item: int, path: str, cause: str) -> Replacement:
        return Replacement(position=-1, video=item, replacement=-1, path=path, cause=cause)


def _by_view(batch: Batch, crops: int) -> Batch:
    """Convert a batch of clips with consecutive crops into one with a row for each crop."""
    if crops == 1 or not len(batch.labels):
        return batch
    clips, frames, *picture = batch.clips.shape
    return batch._replace(
        clips=batch.clips.reshape(clips * crops, frames // crops, *picture),
        labels=batch.labels.repeat_interleave(crops, 0),
        indices=batch.indices.repeat_interleave(crops),
        positions=batch.positions.repeat_interleave(crops),
    )
