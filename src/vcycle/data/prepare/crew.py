"""Processes that each work on one file at a time and may be killed: a stuck or crashing decoder costs one file.

A worker is a fresh interpreter: it holds nothing of this process, so that one can be started in the middle of
anything, and it ends when this process does, however that ends.

No library's pool does this: `concurrent.futures` breaks with its first crash, and `pebble.ProcessPool` counts a timeout
from the start of a job, where here a job of hours is fine as long as it makes progress.
"""

from __future__ import annotations

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

__all__ = ["PATIENCE", "Crew", "Job", "Outcome", "OutputError", "serve"]

_SERVE = "import sys; from vcycle.data.prepare.crew import serve; serve(int(sys.argv[1]))"
PATIENCE = 60.0
"""Seconds without progress after which a file is given up, by default."""

_STARTING = 120.0  # seconds that an interpreter may take to start
_SLOWEST = 2e6  # bytes per second of the slowest disk worth waiting for
_TELL_EVERY = 0.2


class OutputError(DataError):
    """What was made cannot be written: no fault of the file at hand, and the end of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work on one file."""

    payload: Any
    """What the function is called with."""

    size: int
    """Bytes to be read: with them grows the silence that is put up with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended."""

    job: Job
    result: Any
    """What the function returned; none if it failed."""

    cause: str
    """Why it failed, in a line; empty if it did not."""

    died: bool = False
    """The process ended in the middle of it."""


Function = Callable[[Any, Callable[[float], None]], Any]
"""Takes a payload, and is to tell now and then which share of the work is done."""


class Crew:
    """A number of workers; use it in a ``with`` statement, which ends them."""

    def __init__(self, workers: int, *, patience: float = PATIENCE) -> None:
        """Start no process yet.

        Args:
            workers: Files worked on at a time.
            patience: Seconds without any progress after which a file is given up, besides the time that reading
                it from a slow disk takes.
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
        """Work through jobs, in order; gives outcomes as they come.

        A job whose process died is tried once more: it may not have been its fault.

        Args:
            function: What to do, importable by its name. Raises ``VcycleError`` for what is wrong with a file.
            jobs: What to do it with.
            on_share: Told of the share of a job that is done, now and then.

        Raises:
            OutputError: If a job could not write what it made.
            DataError: If no worker can be started.
        """
        waiting = deque(jobs)
        tried_again: set[int] = set()
        while waiting or any(worker.job is not None for worker in self._workers):
            # A worker that is idle and has died takes no job.
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

    def _idle(self) -> _Worker | None:
        return next((worker for worker in self._workers if worker.job is None and worker.alive), None)


class _Worker:
    """One process, seen from outside."""

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
                process_group=0,  # Ctrl-C is for the main process
            )

    def begin(self, function: Function, job: Job) -> None:
        self.job = job
        self._heard = time.monotonic()
        # If it has died, hearing it says so.
        with contextlib.suppress(OSError):
            self.connection.send((function, job.payload))

    def hear(self, on_share: Callable[[Job, float], None]) -> Outcome | None:
        """Take one message; the outcome, if that is what it is."""
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
        """End it at once."""
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
            raise DataError(f"a worker process ended before it began ({how}): {sys.executable} cannot run vcycle")
        perhaps = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
        return self._end(None, f"its decoder killed the process ({how}{perhaps})", died=True)

    def _end(self, result: Any, cause: str, *, died: bool = False) -> Outcome:
        job, self.job = self.job, None
        assert job is not None
        return Outcome(job=job, result=result, cause=cause, died=died)


def serve(descriptor: int) -> None:
    """What a worker runs: takes functions and payloads from a socket until it closes."""
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
    except Exception as error:  # whatever a strange file provokes is that file's failure
        text = " ".join(str(error).split()) or "no message"
        return "failed", f"{type(error).__name__}: {text}"
