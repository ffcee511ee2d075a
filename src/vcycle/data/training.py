"""The steps of a plan as work for a pool: what is loaded for each step, and what replaces a bad item."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from vcycle.data.batch import collate_any, pin
from vcycle.data.composed import name_of, sample_bytes_of
from vcycle.data.dataset import Replacement, Sample, candidates, first_readable
from vcycle.data.pool.work import Room
from vcycle.data.request import SampleRequest
from vcycle.data.sampler import PlanBatchSampler
from vcycle.errors import DataError
from vcycle.plan import Shape, rank_slice

__all__ = ["TrainingWork"]


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


class TrainingWork:
    """The steps of a plan as work for a pool; see ``Work``."""

    def __init__(self, dataset: Any, sampler: PlanBatchSampler, *, pinned: bool) -> None:
        """Load the batches of a sampler from a dataset that answers requests."""
        self._dataset = dataset
        self._sampler = sampler
        self._pinned = pinned
        self._named: set[int] = set()

    def from_step(self, start: int) -> TrainingWork:
        """Return the same work from a step on, for the rank that this process has now."""
        found = copy(self)
        found._sampler = self._sampler.on_rank(start)
        return found

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._sampler)

    def batches(self) -> Iterator[list[_Ask]]:
        """Yield the requests of each step, in order."""
        for requests in self._sampler:
            yield [_Ask(request) for request in requests]

    def load(self, task: _Ask, memory: Tensor | None) -> Any:
        """Load the item of a request, or one in its place if it cannot be read."""
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
        """Return the request that replaces one whose item hung or killed its process.

        Raises:
            DataError: If no other item is left.
        """
        # The bad item may itself replace an unreadable one, which will be found unreadable again.
        bad = task.request.index if item is None else item
        failed = (*task.failed, (bad, cause))
        request = replace(task.request, avoid=(*task.request.avoid, bad))
        found = next(candidates(request, len(self._dataset)), None)
        if found is None:
            raise DataError(f"{self._name(bad)} {cause}, and no replacement is left ({len(failed)} tried)")
        return _Ask(request if item not in (None, task.request.index) else replace(request, index=found), failed)

    def name(self, task: _Ask) -> str:
        """Return the dataset's name for the item."""
        return self._name(task.request.index)

    def sample_bytes(self, task: _Ask) -> int:
        """Return the shared memory that a sample needs."""
        return self._bytes(task.request.shape)

    def room(self) -> Room:
        """Return the shared memory of this rank's largest batch, and the clips of its smallest."""
        rank, world = self._sampler.rank, self._sampler.world
        shares = [
            (len(rank_slice(cell.batch, cell.bn_batch, rank, world)), cell.shape) for cell in self._sampler.plan.shapes
        ]
        return Room(
            batch_bytes=max(clips * self._bytes(shape) for clips, shape in shares),
            fewest=min(clips for clips, _ in shares),
        )

    def collate(self, items: list[Any], memory: Tensor | None) -> Any:
        """Make a batch, and warn about items that were replaced if the batch cannot list them."""
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
