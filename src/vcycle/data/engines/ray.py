"""Jobs as tasks of Ray Core, on the machines of a cluster.

A task runs its job in a process pool of one worker on its machine, which lasts as long as Ray's own worker process. So
a decoder that crashes or hangs costs its file, for the same cause as on one machine. If the task's worker process or
its node dies, the job is submitted again, and Ray gives it to another node.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Self

from vcycle.data.engines.jobs import PATIENCE, Function, Job, Outcome, OutputError
from vcycle.data.engines.local import ProcessPool
from vcycle.errors import DataError
from vcycle.utils.extras import require

__all__ = ["RayEngine"]

_AHEAD = 2  # tasks submitted per core, so that no core waits for this process
_LOSSES = 3  # of one job, after which it may be at fault
_LOOK_EVERY = 10.0  # seconds between two looks at the size of the cluster


class RayEngine:
    """An engine on a Ray cluster; see ``Engine``."""

    def __init__(self, workers: int | None = None, *, patience: float = PATIENCE, gpus: float = 0.0) -> None:
        """Connect to the cluster of ``RAY_ADDRESS``, else to one that runs on this machine, else start one here.

        Args:
            workers: Most jobs in parallel; by default as many as the cluster has room for.
            patience: See ``ProcessPool``.
            gpus: GPUs that each job needs; may be a fraction.

        Raises:
            NotInstalledError: If Ray is not installed.
            DataError: If the cluster cannot be reached, or none of its nodes has room for a job.
        """
        self._ray = require("ray")
        self._most, self._patience, self._gpus = workers, patience, gpus
        self._running: dict[Any, Job] = {}
        self._ours = not self._ray.is_initialized()
        if self._ours:
            try:
                address = os.environ.get("RAY_ADDRESS", "auto")
                try:
                    self._ray.init(address=address, log_to_driver=False, logging_level="error")
                except ConnectionError:
                    if "RAY_ADDRESS" in os.environ:
                        raise
                    self._ray.init(num_cpus=workers, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise DataError(f"no Ray cluster: {' '.join(str(error).split())}") from error
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= 1 and node.get("GPU", 0) >= gpus for node in nodes):
            most = ", ".join(f"{max((node.get(of, 0) for node in nodes), default=0):g} {of}s" for of in ("CPU", "GPU"))
            self.__exit__()
            raise DataError(f"a job needs 1 CPU and {gpus:g} GPUs of one Ray node, but the largest has {most}")

    @property
    def workers(self) -> int:
        """Number of jobs that the cluster has room for now."""
        found = self._ray.cluster_resources()
        room = int(found.get("CPU", 0))
        if self._gpus:
            room = min(room, int(found.get("GPU", 0) / self._gpus))
        return max(1, min(room, self._most or room))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        if self._ours:
            self._ray.shutdown()

    def run(
        self, function: Function, jobs: Iterable[Job], on_share: Callable[[Job, float], None] = lambda *_: None
    ) -> Iterator[Outcome]:
        """Run jobs; see ``Engine.run``. Reports no share of a job before its end.

        A job whose Ray worker or node died is retried twice; one whose process in that worker died, once.
        """
        ray = self._ray
        task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(_run)
        waiting, again = iter(jobs), deque[Job]()
        running = self._running
        lost: dict[int, list[str]] = {}
        looked, room = time.monotonic(), self.workers
        while True:
            while len(running) < (self._most or _AHEAD * room):
                if again:
                    job = again.popleft()
                elif (following := next(waiting, None)) is not None:
                    job = following
                else:
                    break
                running[task.remote(function, job, self._patience)] = job
            if not running:
                return
            ray.wait(list(running), timeout=_LOOK_EVERY)
            done, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
            if time.monotonic() - looked >= _LOOK_EVERY:
                looked, room = time.monotonic(), self.workers
            for reference in done:
                job = running.pop(reference)
                try:
                    kind, outcome = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise DataError(f"a Ray worker cannot run vcycle: {_line(error)}") from error
                except ray.exceptions.RayError as error:
                    ends = lost.setdefault(id(job), [])
                    ends.append(f"its Ray worker or node died ({type(error).__name__})")
                    if len(ends) < _LOSSES:
                        again.append(job)
                    else:
                        yield Outcome(job=job, result=None, cause=f"{ends[-1]}, {_LOSSES} times", redone=ends[0])
                    continue
                if kind == "output":
                    raise OutputError(outcome)
                ends = lost.pop(id(job), [])
                redone = "; ".join(dict.fromkeys([*ends, *([outcome.redone] if outcome.redone else [])]))
                yield Outcome(job=job, result=outcome.result, cause=outcome.cause, redone=redone)


@lru_cache(maxsize=1)
def _pool(patience: float) -> ProcessPool:
    """Return the pool of this Ray worker process, whose own worker ends with it."""
    return ProcessPool(1, patience=patience)


def _run(function: Function, job: Job, patience: float) -> tuple[str, Any]:
    """Run a job on the machine of a Ray worker."""
    try:
        (outcome,) = _pool(patience).run(function, [job])
    except OutputError as error:
        return "output", str(error)
    return "done", outcome


def _line(error: Exception) -> str:
    return " ".join(str(error).strip().splitlines()[-1].split())
