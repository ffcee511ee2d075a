"""Runs a process pool on many files, with progress in MB."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vcycle.data.prepare.process_pool import Function, Job, ProcessPool

__all__ = ["Progress", "each"]

Progress = Callable[[str, int, int], None]
"""Called with the current activity, the MB done and the total MB."""

_MB = 1_000_000


def each(
    crew: ProcessPool, function: Function, jobs: Sequence[Job], what: str, progress: Progress
) -> Iterator[tuple[int, Any, str]]:
    """Run a function on jobs; yield the number of each as it ends, its result, and why it failed.

    Raises:
        DataError: For the reasons of ``ProcessPool.run``.
    """
    number = {id(job): n for n, job in enumerate(jobs)}
    megabytes = -(-max(1, sum(job.size for job in jobs)) // _MB)
    shares = [0.0] * len(jobs)
    read = 0.0

    def so_far(job: Job, share: float) -> None:
        nonlocal read
        read += (share - shares[number[id(job)]]) * job.size
        shares[number[id(job)]] = share
        progress(what, min(round(read / _MB), megabytes - 1), megabytes)

    for outcome in crew.run(function, jobs, so_far):
        so_far(outcome.job, 1.0)
        yield number[id(outcome.job)], outcome.result, outcome.cause
    if jobs:
        progress(what, megabytes, megabytes)
