"""What loading a batch takes, when nothing else runs."""

from __future__ import annotations

import time
from typing import Any

from vcycle.data import loader
from vcycle.plan import Baseline, BatchShape, constant

__all__ = ["batch_seconds"]

_SECONDS = 1.5
_MOST = 64


def batch_seconds(dataset: Any, shape: BatchShape, *, workers: int, timeout: float, prefetch: int | None) -> float:
    """Seconds from one batch to the next, once the loader is under way.

    Args:
        dataset: As `vcycle.loader` takes it.
        shape: Of the batch.
        workers: As of the training.
        timeout: The same.
        prefetch: The same.
    """
    baseline = Baseline(
        batch=shape.batch, frames=shape.frames, size=shape.size, clips=len(dataset), steps=_MOST + 3, lr=0.1
    )
    batches = iter(loader(dataset, constant(baseline), workers=workers, timeout=timeout, prefetch=prefetch))
    try:
        for _ in range(3):  # workers have begun, and what they had ahead is used up
            next(batches)
        began, done, took = time.perf_counter(), 0, 0.0
        while done < _MOST and took < _SECONDS:
            next(batches)
            done, took = done + 1, time.perf_counter() - began
        return took / done
    finally:
        batches.close()
