"""From a plan to each rank's requests: the samples of a step are one list, and ranks take slices of it."""

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
    """One list of requests per step of a plan: the batch sampler of a ``torch.utils.data.DataLoader``.

    Its only state is the step it starts from: a resumed run starts it at step ``k`` and sees what an
    uninterrupted run sees from there on. It can be iterated any number of times, each from ``start``.

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
        """Cut the sample stream of a dataset into the batches of a plan.

        Args:
            plan: The steps, their shapes and batches.
            size: Length of the dataset.
            seed: Seed of the order of samples and of every random choice in them.
            start: First step.
            stop: Step to stop before; the plan's end by default.
            rank: This rank.
            world: Number of ranks.
            replaced: Dataset index to use instead, by position in the stream: the journal of a resumed run.

        Raises:
            PlanError: If ``start`` and ``stop`` are not steps of the plan, or a batch is smaller than the
                number of ranks.
            DataError: If the dataset is empty.
        """
        stop = len(plan) if stop is None else stop
        if not 0 <= start <= stop <= len(plan):
            raise PlanError(f"steps {start} to {stop} are not in the plan: it has steps 0 to {len(plan)}")
        for shape in plan.shapes:
            if shape.batch < world:
                raise PlanError(f"a batch of {shape} is less than one clip for each of {world} ranks")
        rank_slice(world, 1, rank, world)  # refuses a rank outside the world now rather than in a worker
        self.plan = plan
        self.stream = SampleStream(size, seed)
        self.start = start
        self.stop = stop
        self.rank = rank
        self.world = world
        self.replaced = dict(replaced or {})

    def __len__(self) -> int:
        """Number of steps, from ``start`` on."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[SampleRequest]]:
        """Yield this rank's requests of each step, in order."""
        for step in range(self.start, self.stop):
            yield self.requests(self.plan[step])

    def requests(self, step: Step) -> list[SampleRequest]:
        """This rank's requests of one step."""
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
