"""Batch sampler of a plan: all ranks share each step's list of samples, and each takes its slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from vcycle.data.request import SampleRequest
from vcycle.data.stream import SampleStream
from vcycle.errors import PlanError
from vcycle.plan import rank_slice

if TYPE_CHECKING:
    from vcycle.plan import Plan, Step

__all__ = ["PlanBatchSampler"]


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
        rank: int = 0,
        world: int = 1,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        """Split the sample stream of a dataset into the batches of a plan.

        Args:
            plan: The plan: steps, shapes and batch sizes.
            size: Length of the dataset.
            seed: Seed of the sample order and of all random choices in samples.
            start: First step.
            stop: Step to stop before (exclusive); the plan's end by default.
            rank: This rank.
            world: Number of ranks.
            replaced: Replacement indices by position in the stream, from the journal of a resumed run.

        Raises:
            PlanError: If ``start`` and ``stop`` are not steps of the plan, or a batch is smaller than the
                number of ranks.
            DataError: If the dataset is empty.
        """
        stop = len(plan) if stop is None else stop
        if not 0 <= start <= stop <= len(plan):
            raise PlanError(f"steps {start} to {stop} are not in the plan, which has steps 0 to {len(plan)}")
        for shape in plan.shapes:
            if shape.batch < world:
                raise PlanError(f"the batch of {shape} has fewer clips than the {world} ranks")
        rank_slice(world, 1, rank, world)  # refuses an invalid rank here rather than in a worker
        self.plan = plan
        self.stream = SampleStream(size, seed)
        self.start = start
        self.stop = stop
        self.rank = rank
        self.world = world
        self.replaced = dict(replaced or {})

    def __len__(self) -> int:
        """Return the number of steps from ``start`` on."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[SampleRequest]]:
        """Yield this rank's requests of each step, in order."""
        for step in range(self.start, self.stop):
            yield self.requests(self.plan[step])

    def requests(self, step: Step) -> list[SampleRequest]:
        """Return this rank's requests of one step."""
        places = rank_slice(step.batch, step.bn_batch, self.rank, self.world)
        first = step.first_sample + places.start
        indices = self.stream.indices(first, len(places)).tolist()
        return [
            SampleRequest(
                self.replaced.get(position, index),
                step.shape,
                (self.stream.seed, self.stream.epoch(position), position),
            )
            for position, index in enumerate(indices, first)
        ]
