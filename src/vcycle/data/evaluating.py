"""The views of an evaluation, loaded in an order and in batches that do not depend on the ranks that share them."""

from __future__ import annotations

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
    """Load the views of every video once, in order; each rank has its contiguous share.

    A batch holds whole videos where one's views fit into it, else an equal part of one video. Which views share a
    batch does not depend on the number of ranks, so that a model's arithmetic does not either.

    The batches name the video of each view in ``Batch.indices``. Views that cannot be read are left out of their batch
    and listed in ``Batch.replaced``; a batch may be empty for that reason. So are those that hang or kill a worker.

    Args:
        dataset: The videos; also some of them, as PyTorch's ``Subset`` or ``ConcatDataset``.
        views: What is taken of each.
        batch: Views in a batch, at most; more where one clip alone has more crops.
        workers: As all that follows, as in ``loader``.
        timeout: For one clip of a video with its crops.
        prefetch: Clips to load ahead at least, with their crops.
        rank: This rank.
        world: Number of ranks; may be more than there are videos.
        pin_memory: Whether to put batches in page-locked memory.

    Raises:
        DataError: If the dataset has no videos.
    """
    pin_memory = pin_memory and torch.cuda.is_available()
    found = looked_through(dataset)
    if not getattr(found, "samples_grids", False):
        raise DataError(
            f"{type(dataset).__name__} has no videos to take views of: a VideoDataset is accepted, or parts"
        )
    work = _Evaluation(found, views, batch, rank=rank, world=world, pinned=pin_memory)
    return Loader(work, workers=workers, timeout=timeout, prefetch=prefetch, pin_memory=pin_memory)


@dataclass(frozen=True, slots=True)
class _Clip:
    """A clip of a video with its crops, unless reading it is known to hang or to kill a process."""

    item: int
    number: int
    cause: str | None = None


class _Evaluation:
    """The views of an evaluation as work; a task is one clip with all of its crops, which are decoded at once."""

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
        """Videos of a batch, where it holds whole ones."""
        self._parts = -(-views.clips // clips)
        """Batches of a video, where it does not."""
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
    """A batch of clips whose crops lie one after another, with a row for each crop."""
    if crops == 1 or not len(batch.labels):
        return batch
    clips, frames, *picture = batch.clips.shape
    return batch._replace(
        clips=batch.clips.reshape(clips * crops, frames // crops, *picture),
        labels=batch.labels.repeat_interleave(crops, 0),
        indices=batch.indices.repeat_interleave(crops),
        positions=batch.positions.repeat_interleave(crops),
    )
