"""Loads batches of several shapes in turns, with the loader of training."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from vcycle.data import Batch, Batches, loader
from vcycle.plan import BatchShape, Plan, Stage
from vcycle.train.config import TrainConfig

__all__ = ["Stream"]

_LEAD = 3
"""Batches of a turn that are not measured, beyond those that may have been loaded ahead."""


class Stream:
    """One loader for many turns; each turn has the steps of every shape, one shape after another.

    Use it as a context manager; its worker processes stop when the block ends.
    """

    def __init__(
        self, dataset: Any, plan: Plan, steps: Mapping[BatchShape, int], turns: int, config: TrainConfig, *, pin: bool
    ) -> None:
        """Start the loader.

        Args:
            dataset: Dataset for `vcycle.loader`.
            plan: Any plan on it.
            steps: Measured steps per turn, by shape.
            turns: Number of turns.
            config: The training configuration.
            pin: Whether batches go to a GPU.
        """
        loading = config.loading
        ahead = 4 * loading.workers if loading.prefetch is None else loading.prefetch
        self.lead = _LEAD + -(-ahead // min(shape.batch for shape in steps))
        """Batches of a turn that come before those that are measured: as many are loaded ahead, whatever the shape."""
        rate = plan.stages[0].rate
        stages = [
            Stage(name=str(shape), steps=count + self.lead, pattern=(shape,), rate=rate)
            for _ in range(turns)
            for shape, count in steps.items()
        ]
        baseline = plan.baseline.with_(warmup=None, clips=len(dataset))
        turns_plan = replace(plan, baseline=baseline, stages=tuple(stages), warmup_samples=0.0)
        self._batches: Batches = iter(
            loader(
                dataset,
                turns_plan,
                seed=config.run.seed,
                repeats=config.repeats,
                pin_memory=pin,
                **loading.loader_options,
            )
        )
        began = time.perf_counter()
        self._first: Batch | None = self._load()
        self.begin_seconds = time.perf_counter() - began
        """Seconds until the first batch arrived."""

    def next(self) -> Batch:
        """The next batch."""
        first, self._first = self._first, None
        return self._load() if first is None else first

    def _load(self) -> Batch:
        batch: Batch = next(self._batches)
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.close()
