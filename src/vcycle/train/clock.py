"""Measures training time, excluding validation and checkpointing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vcycle.train.outcome import Totals

__all__ = ["Clock"]


class Clock:
    """Adds wall-clock and processor time to a run's totals, lap by lap, from its creation on."""

    def __init__(self, totals: Totals) -> None:
        """Start the clock."""
        self._totals = totals
        self._wall, self._processor = _now()

    def lap(self) -> float:
        """End a lap and start the next; return the seconds since the previous lap."""
        wall, processor = _now()
        took = wall - self._wall
        self._totals.seconds += took
        self._totals.cpu_seconds += processor - self._processor
        self._wall, self._processor = wall, processor
        return took

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the clock within the context; time before it counts."""
        self.lap()
        try:
            yield
        finally:
            self._wall, self._processor = _now()


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
