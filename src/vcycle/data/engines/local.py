"""A process pool for one file per job: a stuck or crashing decoder costs one file.

Each worker is a ``loky`` executor of one process, so a crash breaks that worker alone. The process is a fresh
interpreter that does not import the caller's main module, and ends when the caller does, for whatever reason.
"""

import contextlib
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Self

from loky.backend import get_context
from loky.process_executor import ProcessPoolExecutor

from vcycle.data.engines.jobs import PATIENCE, Function, Job, Outcome, OutputError
from vcycle.errors import DataError, VcycleError, summary
from vcycle.utils.processes import end_with_parent

__all__ = ["ProcessPool"]

CONTEXT: Any = get_context("loky")
"""How a worker starts: as a fresh interpreter. The tests fork, to save the time of the imports."""

_STARTING = 120.0  # seconds an interpreter may take to start
_SLOWEST = 2e6  # bytes per second of the slowest supported disk
_LOOK_EVERY = 0.2  # seconds between two reports of progress


class ProcessPool:
    """An engine on this machine; see ``Engine``."""

    def __init__(self, workers: int, *, patience: float = PATIENCE) -> None:
        """Create a pool; no process is started yet.

        Args:
            workers: Number of files processed in parallel.
            patience: Seconds without progress before a file is abandoned, on top of the time to read it from a slow
                disk.
        """
        self.workers = max(1, workers)
        self._patience = patience
        self._idle: list[_Worker] = []
        self._busy: dict[Future[Any], _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ending = [*self._idle, *self._busy.values()]
        self._idle.clear()
        self._busy.clear()
        with ThreadPoolExecutor(max(1, len(ending))) as pool:  # all at once, as each is waited for
            list(pool.map(_Worker.kill, ending))

    def run(
        self, function: Function, jobs: Iterable[Job], on_share: Callable[[Job, float], None] = lambda *_: None
    ) -> Iterator[Outcome]:
        """Run jobs; see ``Engine.run``. A job whose process died is retried once."""
        waiting, again = iter(jobs), deque[Job]()
        lost: dict[int, str] = {}
        while True:
            while len(self._busy) < self.workers:
                if (job := next(waiting, None)) is None:
                    if not again:
                        break
                    job = again.popleft()
                self._begin(function, job)
            if not self._busy:
                return
            done, _ = wait(self._busy, timeout=_LOOK_EVERY, return_when=FIRST_COMPLETED)
            for worker in [self._busy[future] for future in self._busy if future not in done]:
                worker.tell(on_share)
                if (silent := worker.silent(self._patience)) is not None:
                    worker.kill()
                    del self._busy[worker.future]
                    cause = f"its {worker.job.by} made no progress for {silent:.0f} s and was stopped"
                    yield Outcome(job=worker.job, result=None, cause=cause, redone=lost.pop(id(worker.job), ""))
            for future in done:
                job = self._busy[future].job
                kind, content = self._end(future)
                if kind == "died" and id(job) not in lost:
                    lost[id(job)] = content
                    again.append(job)
                    continue
                if kind == "output":
                    raise OutputError(content)
                failed = kind != "done"
                yield Outcome(
                    job=job,
                    result=None if failed else content,
                    cause=content if failed else "",
                    redone=lost.pop(id(job), ""),
                )

    def _begin(self, function: Function, job: Job) -> None:
        while True:
            fresh = not self._idle
            worker = _Worker() if fresh else self._idle.pop()
            try:
                self._busy[worker.begin(function, job)] = worker
                return
            except BaseException as error:
                worker.kill()
                if fresh or not isinstance(error, BrokenProcessPool):  # else it has died in the meantime
                    raise

    def _end(self, future: Future[Any]) -> tuple[str, Any]:
        """Return what a job has come to; its worker is idle or killed afterwards.

        Raises:
            DataError: If its worker has never started.
        """
        worker, reusable = self._busy[future], False
        try:
            kind, content = future.result()
            reusable = True
        except BrokenProcessPool as error:
            kind, content = "died", worker.death(error)
        finally:
            if reusable:
                self._idle.append(worker)
            else:
                worker.kill()
            del self._busy[future]
        return kind, content


class _Worker:
    """One worker process, seen from the parent."""

    job: Job
    future: Future[Any]

    def __init__(self) -> None:
        self._shares: Connection[Any, Any]
        self._shares, theirs = CONTEXT.Pipe(duplex=False)
        self._started = False
        self._loaded = False
        self._heard = 0.0
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.executor = ProcessPoolExecutor(
            1,
            context=CONTEXT,
            initializer=_start,
            initargs=(theirs, os.getpid()),
            env={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    def begin(self, function: Function, job: Job) -> Future[Any]:
        self.tell(lambda *_: None)  # what the job before has said since
        self._loaded = self._started
        self.job = job
        self._heard = time.monotonic()
        self.future = self.executor.submit(_answer, function, job.payload)
        return self.future

    def tell(self, on_share: Callable[[Job, float], None]) -> None:
        """Pass on how far it is."""
        share = None
        with contextlib.suppress(EOFError, OSError):  # it has died, which its future says too
            while self._shares.poll():
                share = self._shares.recv()
                self._started, self._heard = True, time.monotonic()
        if share is not None:
            on_share(self.job, share)

    def silent(self, patience: float) -> float | None:
        """Return the seconds it was allowed to be silent, if it has been silent for longer."""
        allowed = patience + self.job.size / _SLOWEST + (0 if self._started else _STARTING)
        allowed += 0 if self._loaded else self.job.loading
        return allowed if time.monotonic() - self._heard > allowed else None

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.executor.shutdown(wait=True, kill_workers=True)
        self._shares.close()

    def death(self, error: BaseException) -> str:
        """Return how its process died.

        Raises:
            DataError: If it has never started.
        """
        found = re.search(r"\((-?\d+)\)", str(error))  # loky names the exit code in its message alone
        code = int(found[1]) if found else -signal.SIGKILL
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.tell(lambda *_: None)
        if not self._started:
            raise DataError(f"a worker process failed to start ({how}): {sys.executable} cannot run vcycle")
        perhaps = ", perhaps out of memory" if code == -signal.SIGKILL else ""
        return f"its {self.job.by} killed the process ({how}{perhaps})"


_shares: Any = None
"""Where this process, if it is a worker, reports its progress."""
_told = 0.0


def _start(shares: Any, parent: int) -> None:
    """Set up a worker process."""
    global _shares
    end_with_parent(parent)  # which may have been killed while this interpreter started
    os.setpgid(0, 0)  # only the main process handles Ctrl-C
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    _shares = shares


def _tell(share: float) -> None:
    global _told
    now = time.monotonic()
    if now - _told >= _LOOK_EVERY:
        _told = now
        _shares.send(share)


def _answer(function: Function, payload: Any) -> tuple[str, Any]:
    """Run a job in a worker process."""
    _shares.send(0.0)
    try:
        return "done", function(payload, _tell)
    except OutputError as error:
        return "output", str(error)
    except VcycleError as error:
        return "failed", getattr(error, "cause", "") or str(error)
    except Exception as error:  # any error counts as a failure of the file
        return "failed", summary(error)
