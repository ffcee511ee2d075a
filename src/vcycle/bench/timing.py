"""Times several workloads in turn, so that other load on the machine affects all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Spread", "Turn", "interleaved", "ratios"]

_SHORTEST = 0.05  # seconds; faster work is repeated within a turn


class Spread(NamedTuple):
    """Median and range of several turns."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Median and range of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


class Turn(NamedTuple):
    """Seconds per piece of work, in one turn."""

    cpu: float
    """CPU time over all threads of this process."""

    wall: float


def interleaved(
    works: Mapping[str, Callable[[], int]], repeats: int, tell: Callable[[], None] = lambda: None
) -> dict[str, list[Turn]]:
    """Time several workloads in turn, ``repeats`` times each.

    Each runs once before as an untimed warm-up.

    Args:
        works: Workloads by name; each call returns the number of completed pieces.
        repeats: Turns of each workload.
        tell: Called after every turn.
    """
    rounds = {}
    for name, work in works.items():
        start = time.perf_counter()
        work()
        rounds[name] = max(1, round(_SHORTEST / max(time.perf_counter() - start, 1e-9)))
    turns: dict[str, list[Turn]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            cpu, wall = time.process_time(), time.perf_counter()
            pieces = sum(work() for _ in range(rounds[name]))
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            turns[name].append(Turn(cpu / pieces, wall / pieces))
            tell()
    return turns


def ratios(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """The speed-up of `fast` over `slow`, turn by turn."""
    return Spread.of([a / b for a, b in zip(slow, fast, strict=True)])
