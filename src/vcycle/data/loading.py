"""Batches of a plan, through PyTorch's own ``DataLoader``.

The batches do not depend on the number of workers: every random choice is keyed by the request, none by the
process that makes it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from vcycle.data.dataset import Layout, Replacement, ResampledDataset, Sample, VideoDataset
from vcycle.data.grids import GridSampler
from vcycle.data.sampler import PlanBatchSampler, rank_slice
from vcycle.data.video import VideoError
from vcycle.errors import DataError, VcycleError
from vcycle.plan import Plan, Shape

__all__ = ["Batch", "collate", "evaluation_loader", "loader"]


class Batch(NamedTuple):
    """This rank's clips of one step."""

    clips: Tensor
    """uint8 ``(B, T, H, W, 3)``."""

    labels: Tensor
    """int64 ``(B,)``."""

    indices: Tensor
    """int64 ``(B,)``: the video that each clip is of."""

    positions: Tensor
    """int64 ``(B,)``: positions in the sample stream; -1 in evaluation."""

    replaced: list[Replacement]
    """Videos that could not be read. In evaluation they are left out of the batch."""

    faults: list[str]
    """What is wrong with clips that were usable all the same."""


def collate(samples: Sequence[Sample]) -> Batch:
    """Stack samples of one shape into a batch."""
    return Batch(
        clips=torch.stack([sample.clip for sample in samples]),
        labels=torch.tensor([sample.label for sample in samples]),
        indices=torch.tensor([sample.index for sample in samples]),
        positions=torch.tensor([sample.position for sample in samples]),
        replaced=[replacement for sample in samples for replacement in sample.replaced],
        faults=[sample.fault for sample in samples if sample.fault],
    )


def loader(
    dataset: Any,
    plan: Plan,
    *,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
    replaced: Mapping[int, int] | None = None,
    grids: GridSampler | None = None,
    layout: Layout = "CTHW",
    pin_memory: bool = False,
) -> DataLoader[Any]:
    """Load one batch per step of a plan.

    A dataset that samples grids itself (``samples_grids``, as ``VideoDataset`` does) is asked
    ``dataset[SampleRequest]``. Any other map-style dataset is asked ``dataset[i]`` and its clip resampled;
    its batches are what ``default_collate`` makes of its items.

    Example:
        ``for step, batch in zip(plan, loader(dataset, plan)): ...``

    Args:
        dataset: Where samples come from.
        plan: Shapes and batches.
        seed: Seed of the order of samples and of every random choice in them.
        start: First step: where a resumed run goes on.
        stop: Step to stop before; the plan's end by default.
        workers: Processes that load; 0 loads in this one.
        rank: This rank.
        world: Number of ranks.
        replaced: Dataset index to use instead, by position in the stream: the journal of a resumed run.
        grids: Sampling grids for a dataset that has none; by default those of ``default_grids``.
        layout: Dimensions of such a dataset's clips.
        pin_memory: Whether to put batches in page-locked memory, for faster copies to an accelerator.

    Raises:
        PlanError: If the steps are not in the plan or a batch is smaller than the number of ranks.
        DataError: If the dataset is empty, or ``grids`` are given for one that has its own.
    """
    samples_grids = getattr(dataset, "samples_grids", False)
    if samples_grids and grids is not None:
        raise DataError(f"grids={grids}: {type(dataset).__name__} samples grids of its own; set them there")
    if not samples_grids:
        dataset = ResampledDataset(dataset, grids or default_grids(plan), layout=layout)
    sampler = PlanBatchSampler(
        plan, len(dataset), seed=seed, start=start, stop=stop, rank=rank, world=world, replaced=replaced
    )
    return _Loader(
        _Careful(dataset),
        batch_sampler=sampler,
        collate_fn=_collate,
        pin_memory=pin_memory,
        **_worker_options(workers),
    )


def default_grids(plan: Plan) -> GridSampler:
    """Grids for whole clips: all of a clip at the baseline's shape, a random part of it at smaller ones."""
    baseline = plan.baseline_shape
    return GridSampler(frames=baseline.frames, size=baseline.size)


def evaluation_loader(
    dataset: VideoDataset,
    shape: Shape,
    *,
    batch: int,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
    pin_memory: bool = False,
) -> DataLoader[Any]:
    """Load the center clip of every video once, in order; each rank has its contiguous share.

    Videos that cannot be read are left out of their batch and listed in ``Batch.replaced``; a batch may be
    empty for that reason.
    """
    share = rank_slice(len(dataset), 1, rank, world)
    return _Loader(
        _Careful(_CenterClips(dataset, shape, share)),
        batch_size=batch,
        collate_fn=_collate,
        pin_memory=pin_memory,
        **_worker_options(workers),
    )


class _CenterClips(Dataset[Any]):
    def __init__(self, dataset: VideoDataset, shape: Shape, items: range) -> None:
        self.dataset = dataset
        self.shape = shape
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Sample | Replacement:
        item = self.items[place]
        try:
            return self.dataset.center(item, self.shape)
        except VideoError as error:
            return Replacement(position=-1, video=item, replacement=-1, path=error.path, cause=error.cause)


class _Careful(Dataset[Any]):
    """Hands on errors that a user can mend as items: raised in a worker, they would arrive as a traceback."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: Any) -> Any:
        try:
            return self.dataset[item]
        except VcycleError as error:
            return error


class _Loader(DataLoader[Any]):
    """Raises the errors that were handed on; its workers leave Ctrl-C to the main process."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # Workers inherit the mask from their first moment; an interrupt of this process waits until they are there.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            batches = super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for batch in batches:
            if isinstance(batch, VcycleError):
                raise batch
            yield batch


def _collate(items: list[Any]) -> Any:
    error = next((item for item in items if isinstance(item, VcycleError)), None)
    if error is not None:
        return error
    if not isinstance(items[0], Sample | Replacement):
        return default_collate(items)
    samples = [item for item in items if isinstance(item, Sample)]
    unreadable = [item for item in items if isinstance(item, Replacement)]
    batch = collate(samples) if samples else _no_clips()
    return batch._replace(replaced=batch.replaced + unreadable)


def _no_clips() -> Batch:
    nothing = torch.empty(0, dtype=torch.int64)
    clips = torch.empty(0, 0, 0, 0, 3, dtype=torch.uint8)
    return Batch(clips=clips, labels=nothing, indices=nothing, positions=nothing, replaced=[], faults=[])


def _single_thread(_: int) -> None:
    """Workers run beside one another: more than one thread in each would fight for the cores."""
    torch.set_num_threads(1)


def _worker_options(workers: int) -> dict[str, Any]:
    if workers == 0:
        return {}
    return {
        "num_workers": workers,
        "worker_init_fn": _single_thread,
        # Forked workers start at once and take any dataset, even one that cannot be pickled.
        "multiprocessing_context": "fork" if sys.platform == "linux" else None,
    }
