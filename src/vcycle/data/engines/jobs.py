"""Jobs on files, the engines that run them, and progress in MB."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from vcycle.errors import DataError

__all__ = ["PATIENCE", "Engine", "Function", "Job", "Outcome", "OutputError", "Progress", "Tell", "each"]

PATIENCE = 60.0
"""Default number of seconds without progress before a file is abandoned."""

Tell = Callable[[float], None]
"""Called with the share of a job that is done."""

Function = Callable[[Any, Tell], Any]
"""A job function: takes a payload and a callback to report the share of work done from time to time. It is importable
by name, and raises ``VcycleError`` for a bad file."""

Progress = Callable[[str, int, int], None]
"""Called with the current activity, the MB done and the total MB."""

_MB = 1_000_000


class OutputError(DataError):
    """Output cannot be written. This is no fault of the input file, and ends the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job on one file."""

    payload: Any
    """Argument of the function."""

    size: int
    """Bytes to read; larger files may be silent for longer."""

    loading: float = 0.0
    """Seconds that the first job of a worker may be silent for longer, such as to load a model."""

    by: str = "decoder"
    """What a cause names, if the job's process dies or hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a job."""

    job: Job
    result: Any
    """Return value of the function; None if it failed."""

    cause: str
    """Why it failed, in one line; empty if it succeeded."""

    redone: str = ""
    """Why it was run twice, such as ``its node died``; empty if it was not."""


class Engine(Protocol):
    """Runs jobs; use it in a ``with`` statement, which ends them."""

    @property
    def workers(self) -> int:
        """Number of jobs that run in parallel."""

    def run(
        self, function: Function, jobs: Iterable[Job], on_share: Callable[[Job, float], None] = lambda *_: None
    ) -> Iterator[Outcome]:
        """Run jobs in order; yield outcomes as they come.

        A job whose process died is retried, as often as the engine says: the job may not be at fault.

        Args:
            function: The function to run.
            jobs: The jobs.
            on_share: Called with the share of a job that is done, from time to time.

        Raises:
            OutputError: If a job could not write its output.
            DataError: If no worker can be started.
        """

    def __enter__(self) -> Self:
        """Do nothing yet."""

    def __exit__(self, *_: object) -> None:
        """End all workers."""


def each(
    engine: Engine, function: Function, jobs: Sequence[Job], what: str, progress: Progress
) -> Iterator[tuple[int, Outcome]]:
    """Run a function on jobs; yield the number of each as it ends, and its outcome.

    Raises:
        DataError: For the reasons of ``Engine.run``.
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

    for outcome in engine.run(function, jobs, so_far):
        so_far(outcome.job, 1.0)
        yield number[id(outcome.job)], outcome
    if jobs:
        progress(what, megabytes, megabytes)
