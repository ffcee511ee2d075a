"""Loaders: batches loaded in this process or by a pool of workers, and the steps of a plan with their batches.

Batches do not depend on the number of workers: every random choice is keyed by the request, never by the process.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Self, TypedDict, TypeVar, Unpack

import torch
from torch.utils.data import Dataset

from vcycle.data.balance import Balance
from vcycle.data.composed import looked_through
from vcycle.data.grids import GridSampler
from vcycle.data.pool.batches import Batches, InProcess, PoolBatches
from vcycle.data.pool.work import Work
from vcycle.data.rate_watch import RateWatch
from vcycle.data.resampled import Layout, ResampledDataset
from vcycle.data.sampler import PlanBatchSampler
from vcycle.data.training import TrainingWork
from vcycle.errors import CheckpointError, DataError, shown
from vcycle.plan import Plan, Step
from vcycle.plan.arguments import check_kind, check_number
from vcycle.utils.stack import outside

__all__ = ["TIMEOUT", "Loader", "PlanBatches", "PlanLoader", "Steps", "loader", "steps"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

TIMEOUT = 60.0
"""Default seconds that a worker may take for a sample."""
_AHEAD = 4
"""Default number of samples to load ahead per worker."""


class _Loading(TypedDict, total=False):
    """The arguments of ``loader`` that change no batch."""

    workers: int
    timeout: float
    prefetch: int | None
    pin_memory: bool


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
        check_number("workers", workers, whole=True, error=DataError)
        check_number("timeout", timeout, error=DataError)
        if prefetch is not None:
            check_number("prefetch", prefetch, whole=True, error=DataError)
        if workers < 0 or timeout <= 0 or (prefetch is not None and prefetch < 1):
            raise DataError(
                f"workers={workers}, timeout={timeout}, prefetch={prefetch}: workers must be at least 0, "
                "timeout above 0 and prefetch at least 1"
            )
        if workers and sys.platform != "linux":
            warnings.warn(
                f"workers={workers}: worker processes need Linux; loading in the main process", stacklevel=outside()
            )
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
        return self._load(self.work)

    def _load(self, work: Work) -> Batches:
        if self.workers == 0:
            return InProcess(work)
        return PoolBatches(
            work,
            workers=self.workers,
            timeout=self._timeout,
            prefetch=self._prefetch,
            pin_memory=self._pin_memory,
        )


class PlanBatches(Batches):
    """An iterator of the batches of a plan, which counts those it has returned."""

    def __init__(self, batches: Batches, step: int, on_batch: Callable[[int], None]) -> None:
        """Wrap an iterator.

        Args:
            batches: The batches from a step on.
            step: That step.
            on_batch: Called with the step of the next batch, after each batch.
        """
        self.step = step
        """The step of the next batch."""
        self._batches = batches
        self._on_batch = on_batch

    def __next__(self) -> Any:
        """Return the next batch."""
        batch = next(self._batches)
        self.spent = self._batches.spent
        self.step += 1
        self._on_batch(self.step)
        return batch

    def close(self) -> None:
        """Stop, and end the worker processes."""
        self._batches.close()


class PlanLoader(Loader):
    """The batches of a plan, one per step, with a state that resumes them: see ``loader``.

    ``state_dict`` and ``load_state_dict`` follow the contract of torchdata's ``StatefulDataLoader``. The state counts
    the batches that were taken, not those that workers have loaded ahead. It is the same on all ranks, so another
    number of ranks can resume from it. A loaded state applies to the next iterator from which a batch is taken;
    iterators after it start at ``start`` again.
    """

    def __init__(self, dataset: Any, sampler: PlanBatchSampler, **loading: Unpack[_Loading]) -> None:
        """Create a loader for a dataset that answers requests; see ``loader`` for the arguments.

        Raises:
            DataError: if an argument is out of range.
        """
        work = TrainingWork(dataset, sampler, pinned=loading.get("pin_memory", False))
        super().__init__(work, **loading)
        self._training = work
        self._sampler = sampler
        self._step = sampler.start
        self._resume: int | None = None
        self._loads = 0

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self._sampler.plan

    def __len__(self) -> int:
        """Return the number of steps from ``start`` to ``stop``. It does not change when a state is loaded."""
        return len(self._sampler)

    def __iter__(self) -> PlanBatches:
        """Start loading, as ``Loader`` does: from the loaded state if there is a new one, otherwise from ``start``.

        Raises:
            PlanError: If a batch is smaller than the number of ranks.
        """
        first = self._sampler.start if self._resume is None else self._resume
        loads = self._loads

        def count(step: int) -> None:
            if loads == self._loads:  # else a state was loaded since, for the next iteration
                self._step, self._resume = step, None

        return PlanBatches(self._load(self._training.from_step(first)), first, count)

    def state_dict(self) -> dict[str, Any]:
        """Return the step of the next batch with what identifies the batches: integers and strings alone.

        ``torch.load`` reads it with ``weights_only=True``. After the last batch, ``step`` is the end of the plan.
        """
        return {"step": self._step, **self._identity()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from a state: the next iteration starts at its step.

        Raises:
            CheckpointError: If the state is not one of a loader, or belongs to another plan, seed or length of the
                dataset, or its step is not one of this loader's.
        """
        if not isinstance(state_dict, Mapping):
            raise CheckpointError(
                f"the state of the loader is {type(state_dict).__name__}, not what state_dict() returns"
            )
        try:
            once = {"repeats": 1, "balance": "none"}  # unstated
            own, given = once | self._identity(), once | dict(state_dict)
            step, theirs = given["step"], {name: given[name] for name in own}
        except KeyError as error:
            raise CheckpointError(
                f"the state of the loader lacks {error}: it has {', '.join(map(repr, state_dict)) or 'nothing'}"
            ) from None
        for name, value in own.items():
            if theirs[name] != value:
                raise CheckpointError(
                    f"the state of the loader is of a training with {_MEANING[name]} {theirs[name]}, but this loader "
                    f"has {value}: its batches would differ"
                )
        if not isinstance(step, int) or not 0 <= step <= self._sampler.stop:
            raise CheckpointError(
                f"the state of the loader is at step {step!r}, but this loader has steps 0 to {self._sampler.stop}"
            )
        self._step = self._resume = step
        self._loads += 1

    def _identity(self) -> dict[str, int | str]:
        """What decides the batches, besides the step."""
        stream = self._sampler.stream
        repeats = self._sampler.repeats
        own: dict[str, int | str] = {"plan": self.plan.fingerprint, "seed": stream.seed, "clips": stream.size}
        own |= {} if repeats == 1 else {"repeats": repeats}
        return own if stream.balance is None else own | {"balance": stream.balance.digest}


_MEANING = {
    "plan": "plan",
    "seed": "seed",
    "clips": "a dataset length of",
    "repeats": "repeats of",
    "balance": "balance",
}


class Steps(Iterator[tuple[Step, Any]]):
    """An iterator of pairs, a step and its batch: see ``steps``."""

    def __init__(self, batches: PlanLoader) -> None:
        """Start loading the batches of a loader."""
        self._plan = batches.plan
        self._left = len(batches)
        self._batches = iter(batches)
        self._watch = RateWatch()

    def __len__(self) -> int:
        """Return the number of steps that are left."""
        return self._left

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __next__(self) -> tuple[Step, Any]:
        """Return the next step and its batch."""
        index = self._batches.step
        batch = next(self._batches)
        self._left -= 1
        step = self._plan[index]
        self._watch.see(step)
        return step, batch

    def close(self) -> None:
        """Stop, and end the worker processes."""
        self._batches.close()


def loader(
    dataset: Any,
    plan: Plan,
    *,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    repeats: int = 1,
    workers: int = 0,
    timeout: float = TIMEOUT,
    prefetch: int | None = None,
    rank: int | None = None,
    world: int | None = None,
    replaced: Mapping[int, int] | None = None,
    balance: Balance | None = None,
    grids: GridSampler | None = None,
    layout: Layout = "CTHW",
    key: str | None = None,
    pin_memory: bool = False,
) -> PlanLoader:
    """Load one batch per step of a plan; ``steps`` also gives the step of each batch.

    A dataset that samples grids itself (``samples_grids``, as ``VideoDataset`` does) is called with
    ``dataset[SampleRequest]``, also inside PyTorch's ``Subset`` and ``ConcatDataset``. Any other map-style dataset is
    called with ``dataset[i]`` and its clip is resampled; ``default_collate`` makes batches of its items.

    An item whose dataset raises ``VideoError`` is replaced by another, drawn under the request's key. With workers, so
    is an item that takes longer than ``timeout`` or kills its process twice. Batches of samples list replacements in
    ``replaced``; other batches warn.

    On several ranks each gets its slice of every batch, so nothing may shard the loader again.

    Example:
        ``trainer.fit(model, loader(dataset, plan))``

    Args:
        dataset: The dataset.
        plan: The plan: shapes and batch sizes.
        seed: Seed of the sample order and of all random choices in samples.
        start: First step, to resume a run.
        stop: Step to stop before (exclusive); the plan's end by default.
        repeats: Number of clips of each item in succession, each with its own grid and augmentation (repeated
            augmentation). They count as samples: the plan has the same steps, and a pass over the dataset takes
            ``repeats`` epochs.
        workers: Number of worker processes; 0 loads in the main process.
        timeout: Seconds that a worker may take for a sample.
        prefetch: Number of clips to load ahead at the smallest batch size, by default 4 per worker. Other
            sizes load ahead the same number of batches, at least two.
        rank: This rank. By default it is found when an iteration starts: that of ``torch.distributed`` if it is
            initialised, otherwise of the environment (``RANK``, as ``torchrun`` sets it), otherwise 0.
        world: Number of ranks, found with the rank (``WORLD_SIZE``).
        replaced: Replacement indices by position in the stream, from the journal of a resumed run.
        balance: Groups of items, such as classes, to draw equally often, or nearly so; by default each item once per
            epoch.
        grids: Sampling grids for a dataset that has none. By default a clip of the baseline's shape shows the whole
            item, and a smaller one a random part of it.
        layout: Dimension order of such a dataset's clips.
        key: Key of the clip in such a dataset's items, if they are dicts, such as ``"pixel_values"``.
        pin_memory: Whether to put batches in pinned memory, for faster copies to a CUDA device.

    Raises:
        PlanError: If the steps are not in the plan or a batch is smaller than the number of ranks.
        DataError: If the dataset is empty or has no numbered items, ``grids`` or ``key`` is set for one that samples
            its own grids, or an argument is out of range.
    """
    check_kind("plan", plan, Plan, "vcycle.steps(dataset, plan) or vcycle.loader(dataset, plan)")
    if not _is_indexable(dataset):
        raise DataError(
            f"{type(dataset).__name__} is not a map-style dataset: a plan decides which item comes when, so it needs "
            "len(dataset) and dataset[i]. Give the dataset, or use vcycle.follow for a loader or a stream"
        )
    dataset = looked_through(dataset)
    samples_grids = getattr(dataset, "samples_grids", False)
    if grids is not None:
        check_kind("grids", grids, GridSampler, "vcycle.steps(dataset, plan, grids=GridSampler(...))")
    if samples_grids and grids is not None:
        raise DataError(f"grids={grids}: {type(dataset).__name__} samples its own grids; set them on the dataset")
    if samples_grids and key is not None:
        raise DataError(
            f"key={shown(key)}: {type(dataset).__name__} samples its own grids, so no clip of it is resampled"
        )
    if not samples_grids:
        full = plan.baseline_shape
        grids = grids or GridSampler(frames=full.frames, size=full.size)
        dataset = ResampledDataset(dataset, grids, layout=layout, key=key)
    made_for = plan.baseline
    if made_for.epochs is not None and made_for.clips != len(dataset):
        # Only a warning: a set that lost a few videos may still be trained with the plan of the full set.
        warnings.warn(
            f"the plan is made for {made_for.clips:,} clips, but the dataset has {len(dataset):,}: its steps and "
            f"LR schedule cover {made_for.epochs:g} epochs of the former; use Baseline(clips={len(dataset)})",
            stacklevel=outside(),
        )
    sampler = PlanBatchSampler(
        plan,
        len(dataset),
        seed=seed,
        start=start,
        stop=stop,
        repeats=repeats,
        rank=rank,
        world=world,
        replaced=replaced,
        balance=balance,
    )
    pin_memory = pin_memory and torch.cuda.is_available()
    return PlanLoader(dataset, sampler, workers=workers, timeout=timeout, prefetch=prefetch, pin_memory=pin_memory)


def _takes_those_of(other: Callable[_P, Any]) -> Callable[[Callable[..., _T]], Callable[_P, _T]]:
    """Give a function the signature of another, which it passes its arguments to."""

    def give(function: Callable[..., _T]) -> Callable[_P, _T]:
        own = signature(other).replace(return_annotation=signature(function).return_annotation)

        @wraps(function)
        def named(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                own.bind(*args, **kwargs)
            except TypeError as error:  # Python's would name the other function
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(*args, **kwargs)

        named.__signature__ = own  # type: ignore[attr-defined]
        return named

    return give


@_takes_those_of(loader)
def steps(*args: Any, **kwargs: Any) -> Steps:
    """Iterate over the steps of a plan, each with its batch.

    Arguments and errors are those of ``loader``. A batch is what the dataset's items make: a tuple of tensors for
    tuples, a dict for dicts, a ``Batch`` for a ``VideoDataset``. Workers end with the last step, on ``close()``, or
    when the iterator is deleted, as after leaving a ``for`` loop.

    Warns:
        UserWarning: Once, in a loop that never sets an LR, as without ``vcycle.apply``: eight updates after the plan's
            LR has changed, every optimizer still has that of its first update, and no LR scheduler.

    Example:
        ``for step, (clips, labels) in steps(dataset, plan): ...``
    """
    return Steps(loader(*args, **kwargs))


def _is_indexable(dataset: Any) -> bool:
    """Whether a dataset has a length and items by number. One that can also be iterated, as a stream, may have both."""
    own = getattr(type(dataset), "__getitem__", None)
    return hasattr(dataset, "__len__") and own is not None and own is not Dataset.__getitem__
