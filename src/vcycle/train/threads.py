"""The number of compute threads of each process: chosen before training, kept on resume, and monitored.

If other programs use the cores, more threads make a step slower: each part of it waits for the slowest thread. The
number of threads also decides the order of sums on a CPU, and so the last bits of a result.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from statistics import median
from typing import Literal

import torch

from vcycle.errors import VcycleError
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.utils.cores import cores, idle_cores
from vcycle.utils.jsonl import JsonLines
from vcycle.utils.ranks import launched_here

__all__ = ["Threads", "ThreadsWatch", "slowdown", "threads_to_use", "use_threads"]

Threads = int | Literal["auto"]

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SLOWER = 1.3
"""Slowdown of several threads against one, above which one thread is used or recommended."""
_BUSY = 0.5
"""Share of its threads' time that a process gets, below which it may have too many threads."""
_WINDOW = 20.0
"""Seconds of computing before that share is first checked."""
_TRIES = 5


def use_threads(
    wanted: Threads,
    *,
    workers: int = 0,
    ranks: Ranks = SINGLE_PROCESS,
    resumed: RunFolder | None = None,
    on_message: Callable[[str], None] = lambda _: None,
) -> int:
    """Set the number of compute threads of this process, the same on all ranks.

    Args:
        wanted: The recipe's `run.threads`.
        workers: Data workers of each rank.
        ranks: The ranks that compute together.
        resumed: The run to resume, whose number is kept if the recipe does not set one.
        on_message: Called with a message if other programs reduce the number, or if the number is too high.

    Returns:
        The number of threads.
    """
    local = launched_here(ranks.world)
    kept = None if resumed is None else _kept_by(resumed)
    threads = ranks.from_first(
        lambda: threads_to_use(wanted, workers=workers, local_ranks=local, kept=kept, on_message=on_message)
    )
    torch.set_num_threads(threads)
    return threads


def threads_to_use(
    wanted: Threads,
    *,
    workers: int = 0,
    local_ranks: int = 1,
    kept: int | None = None,
    on_message: Callable[[str], None] = lambda _: None,
) -> int:
    """Choose the number of compute threads.

    In this order: the recipe's number; the environment's (`OMP_NUM_THREADS`); the number that the run had before; the
    idle cores less those of data workers, shared by the ranks of this machine, or one thread if that is faster.

    Args:
        wanted: The recipe's `run.threads`.
        workers: Data workers of each rank.
        local_ranks: Ranks on this machine.
        kept: The number that the run had before; ignored on a machine with fewer cores.
        on_message: Called with a choice that a user may not expect.
    """
    if wanted != "auto":
        _warn(wanted, on_message)
        return wanted
    if threads_are_set():
        threads = torch.get_num_threads()
        _warn(threads, on_message)
        return threads
    here = cores()
    if kept is not None and kept <= here:
        _warn(kept, on_message)
        return kept
    idle = _idle()
    threads = share_of(here if idle is None else min(here, round(idle)), workers=workers, local_ranks=local_ranks)
    if threads > 1 and (ratio := slowdown(threads)) > _SLOWER:
        on_message(f"using 1 thread: {threads} threads are {ratio:.1f}× slower here; run.threads sets another number")
        return 1
    if idle is not None and round(idle) <= here / 2:
        on_message(
            f"using {_count(threads)}: other programs use {here - min(here, round(idle))} of {here} cores; run.threads "
            "sets another number"
        )
    return threads


def threads_are_set() -> bool:
    """Whether the environment sets the number of threads."""
    return any(os.environ.get(name) for name in _VARIABLES)


def share_of(available: int, *, workers: int, local_ranks: int) -> int:
    """Threads of each rank: its cores less its data workers, at least half of its cores and at least one.

    Data workers wait if computing is slow, as on a CPU, so they do not take all cores.

    Example:
        >>> share_of(16, workers=4, local_ranks=1), share_of(16, workers=4, local_ranks=2)
        (12, 4)
        >>> share_of(4, workers=8, local_ranks=1), share_of(0, workers=0, local_ranks=1)
        (2, 1)
    """
    own = available // local_ranks
    return max(1, own - workers, own // 2)


def slowdown(threads: int) -> float:
    """How many times slower a small convolution is on `threads` threads than on one; draws no random numbers."""
    before = torch.get_num_threads()
    clips, weight = torch.ones(2, 16, 8, 28, 28), torch.ones(16, 16, 3, 3, 3)
    took = {}
    try:
        with torch.no_grad():
            for count in (1, threads):
                torch.set_num_threads(count)
                took[count] = _seconds(lambda: torch.nn.functional.conv3d(clips, weight, padding=1))
    finally:
        torch.set_num_threads(before)
    return took[threads] / took[1]


class ThreadsWatch:
    """Checks whether a process gets the cores that its threads need; reports once if one thread is faster."""

    def __init__(
        self,
        threads: int,
        *,
        resume: str,
        on_message: Callable[[str], None],
        measure: Callable[[int], float] = slowdown,
    ) -> None:
        """Create the watch.

        Args:
            threads: The number of threads.
            resume: The command that resumes the run.
            on_message: Called with a message if there are too many threads.
            measure: Measures the slowdown of a number of threads, as `slowdown` does.
        """
        self._threads = threads
        self._resume = resume
        self._say = on_message
        self._measure = measure
        self._window = _WINDOW if threads > 1 else float("inf")
        self._seconds = self._cpu_seconds = 0.0

    def count(self, seconds: float, cpu_seconds: float) -> bool:
        """Count a step.

        Args:
            seconds: Wall-clock time, without waiting for data.
            cpu_seconds: Processor time of this process in it.

        Returns:
            Whether the slowdown was measured, which takes a moment.
        """
        self._seconds += seconds
        self._cpu_seconds += cpu_seconds
        if self._seconds < self._window:
            return False
        busy = self._cpu_seconds >= _BUSY * self._threads * self._seconds
        self._seconds = self._cpu_seconds = 0.0
        if busy:
            return False
        self._window *= 4  # small steps use few threads on an idle machine too: check less and less often
        ratio = self._measure(self._threads)
        if ratio > _SLOWER:
            self._window = float("inf")
            self._say(
                f"{self._threads} threads are {ratio:.1f}× slower than one here, as other programs use the cores: "
                f"`{self._resume} run.threads=1` is faster"
            )
        return True


def _warn(threads: int, on_message: Callable[[str], None]) -> None:
    """Warn if a given number of threads is too high for the free cores."""
    if threads > 1 and (ratio := slowdown(threads)) > _SLOWER:
        on_message(
            f"{threads} threads are {ratio:.1f}× slower than one here, as other programs use the cores: run.threads=1 "
            "is faster"
        )


@cache
def _idle() -> float | None:
    """Cores that other programs leave idle; measured once, before this process computes."""
    return idle_cores()


def _kept_by(run: RunFolder) -> int | None:
    """The number of threads that a run had last; None if unknown."""
    threads = None
    with suppress(VcycleError):  # a record for people: nothing else depends on it
        for line in JsonLines(run.environment).read():
            threads = line.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def _seconds(work: Callable[[], object]) -> float:
    """Median seconds of a few calls."""
    work()
    took = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return median(took)


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
