"""How many threads compute in each process: chosen before a training, kept on resume, and watched.

Threads that wait for one another cost more than they give where other programs use the cores: each part of a step waits
for the thread that runs last. The number also decides the order of sums on a CPU, and so the last bits of a result.
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
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.run import RunFolder
from vcycle.utils.cores import cores, idle_cores
from vcycle.utils.jsonl import JsonLines

__all__ = ["Threads", "ThreadsWatch", "slowdown", "threads_to_use", "use_threads"]

Threads = int | Literal["auto"]

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SLOWER = 1.3
"""Times that several threads take of one's time, from which on one is used, or advised."""
_BUSY = 0.5
"""Share of its threads' time that a process gets, below which they may be too many."""
_WINDOW = 20.0
"""Seconds of computing over which that share is looked at first."""
_TRIES = 5


def use_threads(
    wanted: Threads,
    *,
    workers: int = 0,
    ranks: Ranks = ALONE,
    resumed: RunFolder | None = None,
    on_message: Callable[[str], None] = lambda _: None,
) -> int:
    """Set how many threads this process computes with, on all ranks the same number.

    Args:
        wanted: The recipe's `run.threads`.
        workers: Processes of each rank that load clips.
        ranks: The ranks that compute together.
        resumed: The run that is resumed, whose number is kept where the recipe leaves it open.
        on_message: Told where there are fewer than cores because others use them, or more than are good.

    Returns:
        The number.
    """
    local = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world)))
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
    """How many threads to compute with.

    A number that is wanted counts; else what the environment says (`OMP_NUM_THREADS`); else what the run had before;
    else the idle cores less those of loaders, shared by the ranks of this machine, but one where that is faster.

    Args:
        wanted: The recipe's `run.threads`.
        workers: Processes of each rank that load clips.
        local_ranks: Ranks on this machine.
        kept: What the run had before; on a machine with fewer cores it does not count.
        on_message: Told of a choice that a user may not expect.
    """
    if wanted != "auto":
        _warn(wanted, on_message)
        return wanted
    if any(os.environ.get(name) for name in _VARIABLES):
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
        on_message(f"1 thread computes, as {threads} take {ratio:.1f}× its time here: run.threads sets another number")
        return 1
    if idle is not None and round(idle) <= here / 2:
        on_message(
            f"{_count(threads)}, as other programs use {here - min(here, round(idle))} of {here} cores: run.threads "
            "sets another number"
        )
    return threads


def share_of(available: int, *, workers: int, local_ranks: int) -> int:
    """Threads of each rank: the cores that are left beside its loaders, but half of its cores and one at least.

    Loaders wait where computing is slow, as on a CPU, so they do not take all cores from it.

    Example:
        >>> share_of(16, workers=4, local_ranks=1), share_of(16, workers=4, local_ranks=2)
        (12, 4)
        >>> share_of(4, workers=8, local_ranks=1), share_of(0, workers=0, local_ranks=1)
        (2, 1)
    """
    own = available // local_ranks
    return max(1, own - workers, own // 2)


def slowdown(threads: int) -> float:
    """How many times longer a small convolution takes on some threads than on one; draws no random numbers."""
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
    """Looks whether a process gets the cores that its threads need, and says once where one thread is faster."""

    def __init__(
        self,
        threads: int,
        *,
        resume: str,
        on_message: Callable[[str], None],
        measure: Callable[[int], float] = slowdown,
    ) -> None:
        """Watch a number of threads.

        Args:
            threads: The number.
            resume: The command that resumes the run.
            on_message: Told of too many.
            measure: As `slowdown`.
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
            seconds: Of the wall clock, without waiting for data.
            cpu_seconds: Of this process's processor time in it.

        Returns:
            Whether something was measured, which took a moment.
        """
        self._seconds += seconds
        self._cpu_seconds += cpu_seconds
        if self._seconds < self._window:
            return False
        busy = self._cpu_seconds >= _BUSY * self._threads * self._seconds
        self._seconds = self._cpu_seconds = 0.0
        if busy:
            return False
        self._window *= 4  # small steps use few threads on an idle machine as well: that is asked ever less often
        ratio = self._measure(self._threads)
        if ratio > _SLOWER:
            self._window = float("inf")
            self._say(
                f"{self._threads} threads take {ratio:.1f}× the time of one here, as other programs use the cores: "
                f"`{self._resume} run.threads=1` continues faster"
            )
        return True


def _warn(threads: int, on_message: Callable[[str], None]) -> None:
    """Say that a number that is given is too large for what is free."""
    if threads > 1 and (ratio := slowdown(threads)) > _SLOWER:
        on_message(
            f"{threads} threads take {ratio:.1f}× the time of one here, as other programs use the cores: run.threads=1 "
            "is faster"
        )


@cache
def _idle() -> float | None:
    """Cores that others leave idle: looked at once, before this process computes itself."""
    return idle_cores()


def _kept_by(run: RunFolder) -> int | None:
    """The number of threads that a run had last; None where it is not known."""
    threads = None
    with suppress(VcycleError):  # a record for people: nothing else depends on it
        for line in JsonLines(run.environment).read():
            threads = line.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def _seconds(work: Callable[[], object]) -> float:
    """Seconds that some work takes, the median of a few tries."""
    work()
    took = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return median(took)


def _count(threads: int) -> str:
    return "1 thread computes" if threads == 1 else f"{threads} threads compute"
