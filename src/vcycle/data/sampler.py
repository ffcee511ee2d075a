"""Batch sampler of a plan: all ranks share each step's list of samples, and each takes its slice."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vcycle.data.balance import Balance
from vcycle.data.request import SampleRequest
from vcycle.data.stream import SampleStream
from vcycle.errors import DataError, PlanError, shown
from vcycle.plan import Plan, rank_slice
from vcycle.plan.arguments import check_kind, check_number, check_steps
from vcycle.utils.ranks import rank_and_world

if TYPE_CHECKING:
    from torch.utils.data import Sampler

    from vcycle.plan import Step

__all__ = ["PlanBatchSampler", "check_ranks"]


class PlanBatchSampler:
    """Yields one list of requests per step of a plan; a batch sampler for ``torch.utils.data.DataLoader``.

    Its only state is the start step: a resumed run starts at step ``k`` and gets the same batches as an uninterrupted
    run from there on. It can be iterated any number of times, each time from ``start``.

    Example:
        ``DataLoader(dataset, batch_sampler=PlanBatchSampler(plan, len(dataset), seed=0))``
    """

    def __init__(
        self,
        plan: Plan,
        size: int,
        *,
        seed: int = 0,
        start: int = 0,
        stop: int | None = None,
        repeats: int = 1,
        rank: int | None = None,
        world: int | None = None,
        replaced: Mapping[int, int] | None = None,
        balance: Balance | None = None,
    ) -> None:
        """Split the sample stream of a dataset into the batches of a plan.

        Args:
            plan: The plan: steps, shapes and batch sizes.
            size: Length of the dataset.
            seed: Seed of the sample order and of all random choices in samples.
            start: First step.
            stop: Step to stop before (exclusive); the plan's end by default.
            repeats: Number of clips of each item in succession, each with its own grid and augmentation (repeated
                augmentation, Hoffer et al. 2020). They count as samples: the plan has the same steps, and a pass over
                the dataset takes as many epochs. Within a batch the first clips of its items come first, then the
                second ones, so that BatchNorm groups and mixup's neighbours are different items where the batch has
                enough of them.
            rank: This rank; by default it is found at each iteration: that of ``torch.distributed`` if it is
                initialised, otherwise of the environment (``RANK``), otherwise 0.
            world: Number of ranks, found with the rank (``WORLD_SIZE``).
            replaced: Replacement indices by position in the stream, from the journal of a resumed run.
            balance: Groups of items to draw more equally often; by default each item once per epoch.

        Raises:
            PlanError: If ``plan`` is none, ``start`` and ``stop`` are not steps of the plan, a batch is smaller than
                the number of ranks, or only one of ``rank`` and ``world`` is given.
            DataError: If the dataset is empty, ``repeats`` is below 1, ``replaced`` is no mapping, or ``balance`` is of
                another number of items.
        """
        check_kind("plan", plan, Plan, "PlanBatchSampler(plan, size)")
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise DataError(f"repeats={shown(repeats)}: must be a whole number of clips of each item, at least 1")
        if replaced is not None and not isinstance(replaced, Mapping):
            raise DataError(f"replaced is {shown(replaced)}: a dict of indices of the dataset by position is needed")
        self.plan = plan
        self.start, self.stop = start, len(plan) if stop is None else stop
        check_steps(plan, self.start, self.stop)
        self._given = rank, world
        if rank is not None or world is not None:
            check_ranks(plan, *rank_and_world(rank, world))
        self.stream = SampleStream(size, seed, balance)
        self.repeats = repeats
        self.replaced = dict(replaced or {})

    def __len__(self) -> int:
        """Return the number of steps from ``start`` on."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[SampleRequest]]:
        """Yield this rank's requests of each step, in order.

        Raises:
            PlanError: If a batch is smaller than the number of ranks.
        """
        here = self.on_rank()
        for step in range(self.start, self.stop):
            yield here.requests(self.plan[step])

    def on_rank(self, start: int | None = None) -> PlanBatchSampler:
        """Return the same batches from ``start`` on, with the rank and the number of ranks found now.

        Raises:
            PlanError: If ``start`` is not a step, or a batch is smaller than the number of ranks.
        """
        here = copy(self)
        here._given = rank_and_world(*self._given)
        check_ranks(self.plan, *here._given)
        if start is not None:
            check_steps(self.plan, start, self.stop)
            here.start = start
        return here

    @property
    def rank(self) -> int:
        """This rank, as it is now."""
        return rank_and_world(*self._given)[0]

    @property
    def world(self) -> int:
        """The number of ranks, as it is now."""
        return rank_and_world(*self._given)[1]

    @property
    def batch_size(self) -> int:
        """Absent: the plan's batches have many sizes.

        Raises:
            PlanError: On several ranks. Code that shards a batch sampler reads the batch size first, and this sampler
                gives each rank its slice already. Sharded again, ranks would get different shapes at the same step.
            AttributeError: In one process.
        """
        self._refuse_sharding()
        raise AttributeError("PlanBatchSampler has no one batch_size: it varies over the plan")

    @property
    def sampler(self) -> Sampler[int]:
        """Absent: the plan orders the samples.

        Raises:
            PlanError: On several ranks, if Accelerate reads it, as it does when it prepares a loader. With
                ``dispatch_batches=True`` it would join several batches on one rank and cut them for the others.
                Other code reads it to set an epoch.
            AttributeError: Otherwise.
        """
        if sys._getframe(1).f_globals.get("__name__", "").startswith("accelerate."):
            self._refuse_sharding()
        raise AttributeError("PlanBatchSampler has no sampler: the plan orders the samples")

    def _refuse_sharding(self) -> None:
        world = max(self.world, rank_and_world()[1])
        if world > 1:
            raise PlanError(
                f"PlanBatchSampler already gives each of the {world} ranks its slice of every batch, and must not be "
                "sharded or dispatched again: leave its loader out of Accelerator.prepare, or pass "
                "use_distributed_sampler=False in Lightning and Fabric"
            )

    def requests(self, step: Step) -> list[SampleRequest]:
        """Return this rank's requests of one step."""
        places = rank_slice(step.batch, step.bn_batch, self.rank, self.world)
        first = step.first_sample + places.start
        indices = self._indices(step, places).tolist()
        return [
            SampleRequest(
                self.replaced.get(position, index),
                step.shape,
                (self.stream.seed, self.stream.epoch(position), position),
            )
            for position, index in enumerate(indices, first)
        ]

    def _indices(self, step: Step, places: range) -> NDArray[np.int64]:
        """Return the dataset indices at some places of a step's batch."""
        n = self.repeats
        if n == 1:
            return self.stream.indices(step.first_sample + places.start, len(places))
        # Sample p of the stream is a clip of item p // n. The batch holds its samples in strides of n.
        order = np.concatenate([np.arange(copy, step.batch, n) for copy in range(n)])
        items = (step.first_sample + order[places.start : places.stop]) // n
        first, last = int(items.min()), int(items.max())
        found: NDArray[np.int64] = self.stream.indices(first, last - first + 1)[items - first]
        return found


def check_ranks(plan: Plan, rank: int, world: int) -> None:
    """Check before the first step that ranks can share every batch of a plan.

    Raises:
        PlanError: If a batch has fewer clips than there are ranks, or ``rank`` is not one of them, or no whole number.
    """
    check_number("rank", rank, whole=True)
    check_number("world", world, whole=True)
    for shape in plan.shapes:
        if shape.batch < world:
            raise PlanError(f"the batch of {shape} has fewer clips than the {world} ranks")
    rank_slice(world, 1, rank, world)
