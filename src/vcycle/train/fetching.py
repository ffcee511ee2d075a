"""Fetches batches: this rank's clips of each batch, and statistics over all ranks."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcycle.data import Balance, Batch, loader
from vcycle.data.pool.work import Spent
from vcycle.plan import Plan, Step
from vcycle.train.config import TrainConfig
from vcycle.train.journal import Journal
from vcycle.train.ranks import Ranks
from vcycle.train.state import TrainState

__all__ = ["BatchFetcher", "BatchStats", "open_journal"]


class BatchStats(NamedTuple):
    """Facts about a step's batch that ranks exchange."""

    indices: Tensor
    """Dataset indices of the global batch, in order."""
    ending: bool
    """Whether any rank has a stop request."""


class BatchFetcher:
    """Loads this rank's batches from a step on. Batches stay on the host, which inspects their samples."""

    def __init__(
        self,
        dataset: Any,
        plan: Plan,
        config: TrainConfig,
        *,
        start: int,
        journal: Journal,
        ranks: Ranks,
        pin_memory: bool,
        balance: Balance | None = None,
    ) -> None:
        """Start loading.

        Args:
            dataset: The training set.
            plan: The plan of the run.
            config: Seed and repeats of the samples, and how they are loaded.
            start: The step of the first batch.
            journal: Counts samples, and knows which were replaced before.
            ranks: The ranks that share each batch.
            pin_memory: Put batches into pinned memory, for faster copies to a GPU.
            balance: Groups of items to draw more equally often.
        """
        self._journal, self._ranks = journal, ranks
        self._batches = iter(
            loader(
                dataset,
                plan,
                seed=config.run.seed,
                start=start,
                repeats=config.repeats,
                rank=ranks.rank,
                world=ranks.world,
                replaced=journal.replacements,
                pin_memory=pin_memory,
                balance=balance,
                **config.loading.loader_options,
            )
        )

    @property
    def spent(self) -> Spent:
        """The cost of loading the last batch."""
        return self._batches.spent

    def take(self) -> tuple[Batch, float]:
        """The next batch, and the seconds spent waiting for it."""
        began = time.perf_counter()
        batch = next(self._batches)
        return batch, time.perf_counter() - began

    def count(self, step: Step, batch: Batch, *, stopping: bool) -> BatchStats:
        """Count a step's batch on all ranks.

        Args:
            step: The step.
            batch: This rank's clips of it.
            stopping: Whether this rank has a stop request; only used with several ranks.

        Raises:
            DataError: if too many of the run's samples were replaced.
        """
        replaced = self._journal.note(batch)
        if self._ranks.world == 1:
            self._journal.count(len(batch.indices), replaced)
            return BatchStats(batch.indices, False)
        own = batch.indices.tolist()
        longest = -(-step.batch // self._ranks.world) + step.bn_batch  # the longest slice of any rank
        rows = self._ranks.all_gather_ints([replaced, stopping, len(own), *own, *[0] * (longest - len(own))])
        self._journal.count(step.batch, sum(row[0] for row in rows))
        indices = torch.tensor([index for row in rows for index in row[3 : 3 + row[2]]])
        return BatchStats(indices, any(row[1] for row in rows))

    def sync(self) -> None:
        """Wait until the journal is on disk."""
        self._journal.sync()

    def close(self) -> None:
        """Stop the data workers."""
        self._batches.close()


def open_journal(
    state: TrainState,
    *,
    start: int,
    repeats: int,
    max_draws_per_epoch: int,
    limit: float,
    on_message: Callable[[str], None],
    ranks: Ranks,
) -> Journal:
    """Open this rank's journal of replaced samples, read back from a step on."""
    own = state.run.bad_samples_of(ranks.rank)
    return Journal(
        own,
        state.totals,
        others=[file for file in state.run.all_bad_samples if file != own],
        first=state.plan.samples_before(start),
        clips=state.plan.baseline.clips,
        repeats=repeats,
        max_draws_per_epoch=max_draws_per_epoch,
        limit=limit,
        on_message=on_message,
    )
