"""A process pool for one file per job: a stuck or crashing decoder costs one file.

A worker is a fresh interpreter. It inherits nothing from this process, so it can be started at any time, and it ends
when this process does, for whatever reason.

No library pool does this: `concurrent.futures` breaks on its first crash, and `pebble.ProcessPool` counts a timeout
from the start of a job, but here a job of hours is fine as long as it makes progress.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from vcycle.errors import DataError, VcycleError
from vcycle.utils.processes import end_with_parent

__all__ = ["PATIENCE", "Job", "Outcome", "OutputError", "ProcessPool", "serve"]

_SERVE = "import sys; from vcycle.data.prepare.process_pool import serve; serve(int(sys.argv[1]))"
PATIENCE = 60.0
"""Default number of seconds without progress before a file is abandoned."""

_STARTING = 120.0  # seconds an interpreter may take to start
_SLOWEST = 2e6  # bytes per second of the slowest supported disk
_TELL_EVERY = 0.2


class OutputError(DataError):
    """Output cannot be written. This is no fault of the input file, and ends the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job on one file."""

    payload: Any
    """Argument of the function."""

    size: int
    """Bytes to read; larger files may be silent for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a job."""

    job: Job
    result: Any
    """Return value of the function; None if it failed."""

    cause: str
    """Why it failed, in one line; empty if it succeeded."""

    died: bool = False
    """Whether the process died during the job."""


Function = Callable[[Any, Callable[[float], None]], Any]
"""A job function: takes a payload and a callback to report the share of work done from time to time."""


class ProcessPool:
    """A pool of workers; use it in a ``with`` statement, which ends them."""

    def __init__(self, workers: int, *, patience: float = PATIENCE) -> None:
        """Create a pool; no process is started yet.

        Args:
            workers: Number of files processed in parallel.
            patience: Seconds without progress before a file is abandoned, on top of the time to read it from a slow
                disk.
        """
        self._count = max(1, workers)
        self._patience = patience
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def run(
        self,
        function: Function,
        jobs: Iterable[Job],
        on_share: Callable[[Job, float], None] = lambda *_: None,
    ) -> Iterator[Outcome]:
        """Process jobs in order; yield outcomes as they come.

        A job whose process died is retried once: the job may not be at fault.

        Args:
            function: The function to run, importable by name. Raises ``VcycleError`` for a bad file.
            jobs: The jobs.
            on_share: Called with the share of a job that is done, from time to time.

        Raises:
            OutputError: If a job could not write its output.
            DataError: If no worker can be started.
        """
        waiting = deque(jobs)
        tried_again: set[int] = set()
        while waiting or any(worker.job is not None for worker in self._workers):
            # An idle worker that has died gets no job.
            self._workers = [worker for worker in self._workers if worker.alive or worker.job is not None]
            while waiting and len(self._workers) < self._count and self._idle() is None:
                self._workers.append(_Worker())
            while waiting and (worker := self._idle()) is not None:
                worker.begin(function, waiting.popleft())
            busy = {worker.connection: worker for worker in self._workers if worker.job is not None}
            for connection in wait(list(busy), timeout=0.5):
                outcome = busy[connection].hear(on_share)  # type: ignore[index]
                if outcome is not None and outcome.died and id(outcome.job) not in tried_again:
                    tried_again.add(id(outcome.job))
                    waiting.append(outcome.job)
                elif outcome is not None:
                    yield outcome
            for worker in busy.values():
                outcome = worker.give_up(self._patience)
                if outcome is not None:
                    yield outcome

    def _idle(self) -> "_Worker | None":
        return next((worker for worker in self._workers if worker.job is None and worker.alive), None)


class _Worker:
    """One worker process, seen from the parent."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        self.job: Job | None = None
        self.alive = True
        self._ready = False
        self._heard = time.monotonic()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # only the main process handles Ctrl-C
            )

    def begin(self, function: Function, job: Job) -> None:
        self.job = job
        self._heard = time.monotonic()
        # If it has died, hear() notices.
        with contextlib.suppress(OSError):
            self.connection.send((function, job.payload))

    def hear(self, on_share: Callable[[Job, float], None]) -> Outcome | None:
        """Receive one message; return the outcome if it is one."""
        assert self.job is not None
        try:
            kind, content = self.connection.recv()
        except (EOFError, OSError):
            return self._died()
        self._heard = time.monotonic()
        if kind == "ready":
            self._ready = True
        elif kind == "share":
            on_share(self.job, content)
        elif kind == "output":
            raise OutputError(content)
        else:
            return self._end(content, "") if kind == "done" else self._end(None, content)
        return None

    def give_up(self, patience: float) -> Outcome | None:
        """Kill a worker that has been silent for too long."""
        if self.job is None:
            return None
        allowed = patience + self.job.size / _SLOWEST + (0 if self._ready else _STARTING)
        if time.monotonic() - self._heard <= allowed:
            return None
        self.kill()
        return self._end(None, f"its decoder made no progress for {allowed:.0f} s and was stopped")

    def kill(self) -> None:
        """Kill it immediately."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def _died(self) -> Outcome:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        self.kill()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if not self._ready:
            raise DataError(f"a worker process failed to start ({how}): {sys.executable} cannot run vcycle")
        perhaps = ", perhaps out of memory" if code == -signal.SIGKILL else ""
        return self._end(None, f"its decoder killed the process ({how}{perhaps})", died=True)

    def _end(self, result: Any, cause: str, *, died: bool = False) -> Outcome:
        job, self.job = self.job, None
        assert job is not None
        return Outcome(job=job, result=result, cause=cause, died=died)


def serve(descriptor: int) -> None:
    """Run the worker: receives functions and payloads from a socket until it closes."""
    end_with_parent()
    connection: Connection[Any, Any] = Connection(descriptor)
    connection.send(("ready", None))
    told = 0.0

    def tell(share: float) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _TELL_EVERY:
            told = now
            connection.send(("share", share))

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            function, payload = connection.recv()
            connection.send(_answer(function, payload, tell))


def _answer(function: Function, payload: Any, tell: Callable[[float], None]) -> tuple[str, Any]:
    try:
        return "done", function(payload, tell)
    except OutputError as error:
        return "output", str(error)
    except VcycleError as error:
        return "failed", getattr(error, "cause", "") or str(error)
    except Exception as error:  # any error counts as a failure of the file
        text = " ".join(str(error).split()) or "no message"
        return "failed", f"{type(error).__name__}: {text}"
