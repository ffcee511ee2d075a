"""The training loader: batches of a plan, loaded in this process or by a pool of workers.

Batches do not depend on the number of workers: every random choice is keyed by the request, never by the process.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from vcycle.data.batch import collate_any, pin
from vcycle.data.composed import looked_through, name_of, sample_bytes_of
from vcycle.data.dataset import Replacement, Sample, candidates, first_readable
from vcycle.data.grids import GridSampler
from vcycle.data.pool.batches import Batches, InProcess, PoolBatches
from vcycle.data.pool.work import Room, Work
from vcycle.data.request import SampleRequest
from vcycle.data.resampled import Layout, ResampledDataset
from vcycle.data.sampler import PlanBatchSampler
from vcycle.errors import DataError
from vcycle.plan import Plan, Shape, rank_slice

__all__ = ["TIMEOUT", "Loader", "loader"]

TIMEOUT = 60.0
"""Default seconds that a worker may take for a sample."""
_AHEAD = 4
"""Default number of samples to load ahead per worker."""


class Loader:
    """An iterable of batches. Each iteration starts from the first batch, with its own worker processes."""

    def __init__(
        self,
        work: Work,
        *,
        workers: int = 0,
        timeout: float = TIMEOUT,
        prefetch: int | None = None,
        pin_memory: bool = False,
    ) -> None:
        """Create a loader for some work; see ``loader`` for the arguments.

        Raises:
            DataError: if an argument is out of range.
        """
        if workers < 0 or timeout <= 0 or (prefetch is not None and prefetch < 1):
            raise DataError(
                f"workers={workers}, timeout={timeout}, prefetch={prefetch}: workers must be at least 0, "
                "timeout above 0 and prefetch at least 1"
            )
        if workers and sys.platform != "linux":
            warnings.warn(f"workers={workers}: worker processes need Linux; loading in the main process", stacklevel=3)
            workers = 0
        self.work = work
        self.workers = workers
        self._timeout = timeout
        self._prefetch = _AHEAD * workers if prefetch is None else prefetch
        self._pin_memory = pin_memory

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.work)

    def __iter__(self) -> Batches:
        """Start loading. Workers end with the last batch, on ``close()``, or when the iterator is deleted."""
        if self.workers == 0:
            return InProcess(self.work)
        return PoolBatches(
            self.work,
            workers=self.workers,
            timeout=self._timeout,
            prefetch=self._prefetch,
            pin_memory=self._pin_memory,
        )


def loader(
    dataset: Any,
    plan: Plan,
    *,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    workers: int = 0,
    timeout: float = TIMEOUT,
    prefetch: int | None = None,
    rank: int = 0,
    world: int = 1,
    replaced: Mapping[int, int] | None = None,
    grids: GridSampler | None = None,
    layout: Layout = "CTHW",
    pin_memory: bool = False,
) -> Loader:
    """Load one batch per step of a plan.

    A dataset that samples grids itself (``samples_grids``, as ``VideoDataset`` does) is called with
    ``dataset[SampleRequest]``, also inside PyTorch's ``Subset`` and ``ConcatDataset``. Any other map-style dataset is
    called with ``dataset[i]`` and its clip is resampled; ``default_collate`` makes batches of its items.

    An item whose dataset raises ``VideoError`` is replaced by another, drawn under the request's key. With workers, so
    is an item that takes longer than ``timeout`` or kills its process twice. Batches of samples list replacements in
    ``replaced``; other batches warn.

    Example:
        ``for step, batch in zip(plan, loader(dataset, plan)): ...``

    Args:
        dataset: The dataset.
        plan: The plan: shapes and batch sizes.
        seed: Seed of the sample order and of all random choices in samples.
        start: First step, to resume a run.
        stop: Step to stop before (exclusive); the plan's end by default.
        workers: Number of worker processes; 0 loads in the main process.
        timeout: Seconds that a worker may take for a sample.
        prefetch: Number of clips to load ahead at the smallest batch size, by default 4 per worker. Other
            sizes load ahead the same number of batches, at least two.
        rank: This rank.
        world: Number of ranks.
        replaced: Replacement indices by position in the stream, from the journal of a resumed run.
        grids: Sampling grids for a dataset that has none; ``default_grids`` by default.
        layout: Dimension order of such a dataset's clips.
        pin_memory: Whether to put batches in pinned memory, for faster copies to a CUDA device.

    Raises:
        PlanError: If the steps are not in the plan or a batch is smaller than the number of ranks.
        DataError: If the dataset is empty or is not map-style, ``grids`` is set for one that samples its own, or
            an argument is out of range.
    """
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(
            f"{type(dataset).__name__} is not a map-style dataset: a plan decides which item comes when, so it needs "
            "len(dataset) and dataset[i]"
        )
    dataset = looked_through(dataset)
    samples_grids = getattr(dataset, "samples_grids", False)
    if samples_grids and grids is not None:
        raise DataError(f"grids={grids}: {type(dataset).__name__} samples its own grids; set them on the dataset")
    if not samples_grids:
        dataset = ResampledDataset(dataset, grids or default_grids(plan), layout=layout)
    made_for = plan.baseline
    if made_for.epochs is not None and made_for.clips != len(dataset):
        # Only a warning: a set that lost a few videos may still be trained with the plan of the full set.
        warnings.warn(
            f"the plan is made for {made_for.clips:,} clips, but the dataset has {len(dataset):,}: its steps and "
            f"LR schedule cover {made_for.epochs:g} epochs of the former; use Baseline(clips={len(dataset)})",
            stacklevel=2,
        )
    pin_memory = pin_memory and torch.cuda.is_available()
    sampler = PlanBatchSampler(
        plan, len(dataset), seed=seed, start=start, stop=stop, rank=rank, world=world, replaced=replaced
    )
    work = _Training(dataset, sampler, pinned=pin_memory)
    return Loader(work, workers=workers, timeout=timeout, prefetch=prefetch, pin_memory=pin_memory)


def default_grids(plan: Plan) -> GridSampler:
    """Return grids for whole clips: the whole clip at the baseline's shape, a random part of it at smaller shapes."""
    baseline = plan.baseline_shape
    return GridSampler(frames=baseline.frames, size=baseline.size)


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request, and the items tried before in its place that hung or killed a process, with the cause."""

    request: SampleRequest
    failed: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Substitute:
    """A replacement item that cannot record what it replaces, and that record."""

    item: Any
    replaced: tuple[Replacement, ...]


class _Training:
    """The steps of a plan as work for a pool."""

    def __init__(self, dataset: Any, sampler: PlanBatchSampler, *, pinned: bool) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._pinned = pinned
        self._named: set[int] = set()

    def __len__(self) -> int:
        return len(self._sampler)

    def batches(self) -> Iterator[list[_Ask]]:
        for requests in self._sampler:
            yield [_Ask(request) for request in requests]

    def load(self, task: _Ask, memory: Tensor | None) -> Any:
        into = None if memory is None else getattr(self._dataset, "load_into", None)

        def read(index: int) -> Any:
            request = task.request if index == task.request.index else replace(task.request, index=index)
            return self._dataset[request] if into is None else into(request, memory)

        # Datasets that replace bad items themselves raise no VideoError.
        used, item, unreadable = first_readable(
            task.request, len(self._dataset), read, what="items in a row cannot be read"
        )
        failed = [(index, self._name(index), cause) for index, cause in task.failed]
        failed += [(index, error.path, error.cause) for index, error in unreadable]
        if not failed:
            return item
        used = item.index if isinstance(item, Sample) else used
        replaced = tuple(
            Replacement(position=task.request.position, video=index, replacement=used, path=path, cause=cause)
            for index, path, cause in failed
        )
        if isinstance(item, Sample):
            return replace(item, replaced=replaced + item.replaced)
        return _Substitute(item, replaced)

    def instead(self, task: _Ask, cause: str, item: int | None) -> _Ask:
        # The bad item may itself replace an unreadable one, which will be found unreadable again.
        bad = task.request.index if item is None else item
        failed = (*task.failed, (bad, cause))
        request = replace(task.request, avoid=(*task.request.avoid, bad))
        found = next(candidates(request, len(self._dataset)), None)
        if found is None:
            raise DataError(f"{self._name(bad)} {cause}, and no replacement is left ({len(failed)} tried)")
        return _Ask(request if item not in (None, task.request.index) else replace(request, index=found), failed)

    def name(self, task: _Ask) -> str:
        return self._name(task.request.index)

    def sample_bytes(self, task: _Ask) -> int:
        return self._bytes(task.request.shape)

    def room(self) -> Room:
        sampler = self._sampler
        shares = [
            (len(rank_slice(cell.batch, cell.bn_batch, sampler.rank, sampler.world)), cell.shape)
            for cell in sampler.plan.shapes
        ]
        return Room(
            batch_bytes=max(clips * self._bytes(shape) for clips, shape in shares),
            fewest=min(clips for clips, _ in shares),
        )

    def collate(self, items: list[Any], memory: Tensor | None) -> Any:
        batch = collate_any([item.item if isinstance(item, _Substitute) else item for item in items], memory)
        for item in items:
            if isinstance(item, _Substitute):
                self._warn_of(item.replaced)
        return pin(batch) if self._pinned else batch

    def _bytes(self, shape: Shape) -> int:
        return sample_bytes_of(self._dataset, shape)

    def _name(self, index: int) -> str:
        return name_of(self._dataset, index)

    def _warn_of(self, replaced: tuple[Replacement, ...]) -> None:
        for bad in replaced:
            if bad.video not in self._named:
                self._named.add(bad.video)
                said = f"{bad.path}: {bad.cause}" if bad.cause else bad.path
                warnings.warn(f"bad {said}; another takes its place", stacklevel=2)
