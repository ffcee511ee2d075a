"""Trains the runs of a study several at a time: each in a process of its own, with its GPU or its share of the cores.

The process of the study alone writes results and talks to the user. What asks it to stop is passed on as SIGTERM: the
trainings finish their step and save it, as one training does. Ctrl-C of a terminal reaches all processes, so the
others block it.
"""

import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from vcycle.bench.runs import Arm, ArmRun, Failure, attempt
from vcycle.config.recipe import RecipeBase
from vcycle.errors import RecipeError, VcycleError
from vcycle.tasks.recipes import import_modules
from vcycle.train import stopping
from vcycle.utils.cores import cores
from vcycle.utils.processes import end_with_parent

__all__ = ["Jobs", "Tell", "Trainer", "most_jobs", "train_at_once"]

Tell = Callable[[str, Any], None]
"""Sends the study's process a message with its kind: `message`, or `work` with the work done of the training."""
Trainer = Callable[[Tell], Callable[[Arm, int], ArmRun]]
"""Makes the function that trains an arm with a seed."""

_PATIENCE = 10.0
"""Seconds from a second request to stop until processes that do not react are killed."""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """How many trainings there are at a time, and what each may use."""

    number: int
    threads: int
    """Threads that each computes with, where neither the recipe nor the environment says it."""
    gpus: tuple[str, ...] = ()
    """The visible GPUs, as `CUDA_VISIBLE_DEVICES` names them; jobs take them in turn."""

    @classmethod
    def of(cls, number: int, recipe: RecipeBase) -> "Jobs":
        """The jobs of this machine for a recipe.

        Raises:
            RecipeError: if there are more jobs than cores.
        """
        from vcycle.train.threads import share_of

        here = cores()
        if not 1 <= number <= here:
            raise RecipeError(f"--jobs {number}: 1 to {here} are accepted, as this process has {here} cores")
        threads = share_of(here, workers=recipe.data.workers, local_ranks=number)
        return cls(number=number, threads=threads, gpus=_gpus(recipe))

    def own(self, recipe: RecipeBase) -> RecipeBase:
        """The recipe with the threads of a job."""
        from vcycle.train.threads import threads_are_set

        if self.number == 1 or recipe.run.threads != "auto" or threads_are_set():
            return recipe
        return recipe.model_copy(update={"run": recipe.run.model_copy(update={"threads": self.threads})})

    def notices(self) -> list[str]:
        """What a user may not expect of these jobs."""
        if 0 < len(self.gpus) < self.number:
            gpus = "1 GPU" if len(self.gpus) == 1 else f"{len(self.gpus)} GPUs"
            return [f"{self.number} trainings share {gpus}: memory must suffice for those of each"]
        return []


def most_jobs(recipe: RecipeBase, trainings: int, *, most: int = 4) -> int:
    """As many trainings at a time as this machine has GPUs for the recipe, or else cores."""
    return max(1, min(len(_gpus(recipe)) or cores(), cores(), trainings, most))


def _gpus(recipe: RecipeBase) -> tuple[str, ...]:
    if recipe.run.device == "cpu":
        return ()
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return tuple([name.strip() for name in given.split(",")] if given else map(str, range(count)))[:count]


@dataclass(kw_only=True)
class _Job:
    """A process, and the training that it is at."""

    process: SpawnProcess
    connection: Connection
    arm: Arm
    seed: int
    work: float = 0.0
    """Done of the training, in steps of the baseline."""

    def begin(self, arm: Arm, seed: int) -> None:
        self.arm, self.seed, self.work = arm, seed, 0.0
        with suppress(ConnectionError):  # it has ended, which the next look at it tells
            self.connection.send((arm, seed))

    def received(self) -> tuple[str, Any]:
        """Its next message; `gone` where it has ended."""
        try:
            found: tuple[str, Any] = self.connection.recv()
        except (EOFError, ConnectionError):
            return "gone", None
        return found

    def end(self) -> None:
        self.connection.close()
        self.process.join()

    def how_it_ended(self) -> str:
        """Why it ended before its training did."""
        self.process.join()
        code = self.process.exitcode or 0
        number = -code if code < 0 else code - 128
        with suppress(ValueError):
            return f"was stopped by {signal.Signals(number).name}"
        return f"ended with exit code {code}"


def train_at_once(
    wanted: Sequence[tuple[Arm, int]],
    *,
    jobs: Jobs,
    modules: Sequence[str],
    trainer: Trainer,
    on_start: Callable[[Arm, int], None],
    on_progress: Callable[[str, int, int], None],
    on_message: Callable[[str], None],
) -> Generator[ArmRun | Failure]:
    """Train each arm with its seed, several at a time, and yield what becomes of each when it ends.

    Args:
        wanted: The arms and seeds.
        jobs: How many at a time.
        modules: Modules that each process imports first, as a recipe names them.
        trainer: Makes what trains, in each process; it and what it holds are pickled.
        on_start: Called with the arm and seed when a training starts.
        on_progress: Called with the work done of all trainings, in steps of the baseline.
        on_message: Called with messages for the user.

    Raises:
        VcycleError: if a process ends before its training.
        Exception: any that a training does not end with as a `Failure`.
    """
    waiting = list(wanted)
    total, before = sum(arm.plan.work() for arm, _ in wanted), 0.0
    busy: list[_Job] = []

    def tell_progress() -> None:
        on_progress("work of all trainings", int(before + sum(job.work for job in busy)), int(total))

    try:
        for place in range(min(jobs.number, len(waiting))):
            arm, seed = waiting.pop(0)
            busy.append(_started(arm, seed, place, jobs, modules, trainer))
            on_start(arm, seed)
        while busy:  # progress is told from the first work on: the processes start for seconds
            ready = wait([job.connection for job in busy])
            for job in [job for job in busy if job.connection in ready]:
                kind, content = job.received()
                if kind == "gone":
                    busy.remove(job)
                    name = f"{job.arm.name}, seed {job.seed}"
                    raise VcycleError(
                        f"the process that trained {name}, {job.how_it_ended()}; the same command resumes the study"
                    )
                if kind == "raised":
                    error, text = content
                    raise error from _JobError(f"\n{text}")
                if kind == "message":
                    on_message(content)
                elif kind == "work":
                    job.work = content
                    tell_progress()
                else:
                    before += job.arm.plan.work()
                    if waiting:
                        job.begin(*waiting.pop(0))
                        on_start(job.arm, job.seed)
                    else:
                        busy.remove(job)
                        job.end()
                    tell_progress()
                    yield content
    except KeyboardInterrupt as stopped:
        name = getattr(stopped, "signal", signal.SIGINT).name
        on_message(f"{name}: the trainings finish and save their step; Ctrl-C again stops at once")
        raise
    finally:
        _stop(busy, on_message)


def _stop(busy: Sequence[_Job], on_message: Callable[[str], None]) -> None:
    """Have trainings finish their step and save it; after a second Ctrl-C they have a few seconds left."""
    for job in busy:
        job.process.terminate()
    until, left = None, list(busy)
    while left:
        try:
            ready = wait(
                [job.connection for job in left], None if until is None else max(0.0, until - time.monotonic())
            )
            for job in [job for job in left if job.connection in ready]:
                kind, content = job.received()
                if kind == "message":
                    on_message(content)
                elif kind == "gone":
                    left.remove(job)
                    job.end()
            if until is not None and time.monotonic() >= until:
                for job in left:
                    job.process.kill()
        except KeyboardInterrupt:
            until = time.monotonic() + (_PATIENCE if until is None else 0.0)


def _started(arm: Arm, seed: int, place: int, jobs: Jobs, modules: Sequence[str], trainer: Trainer) -> _Job:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    gpu = jobs.gpus[place % len(jobs.gpus)] if jobs.gpus else None
    held = (list(modules), pickle.dumps(trainer))  # read after the modules are imported: it may hold what is theirs
    process = context.Process(target=_work, args=(theirs, os.getpid(), *held, gpu))
    resource_tracker.ensure_running()  # it unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stopping.SIGNALS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    job = _Job(process=process, connection=ours, arm=arm, seed=seed)
    job.begin(arm, seed)
    return job


def _work(connection: Connection, parent: int, modules: list[str], trainer: bytes, gpu: str | None) -> None:
    """Train what the study's process asks for, until it asks no more."""
    end_with_parent(parent)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu

    def tell(kind: str, content: Any) -> None:
        with suppress(ConnectionError):  # the study's process has given up; what is at hand is still saved
            connection.send((kind, content))

    warnings.showwarning = lambda message, *_: tell("message", f"warning: {message}")
    with stopping.signals(lambda _: None) as stop:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {*stopping.SIGNALS} - {signal.SIGINT})
            import_modules(modules, "the recipe")
            train = pickle.loads(trainer)(tell)
            while True:
                arm, seed = connection.recv()
                tell("ended", attempt(arm, seed, train))
        except EOFError:
            return
        except stopping.Stopped as stopped:
            sys.exit(128 + stopped.signal)
        except Exception as error:
            if stop.struck is not None:  # in an import, which turns it into another error
                sys.exit(128 + stop.struck)
            tell("raised", _portable(error))


class _JobError(Exception):
    """The traceback of an exception in the process of a training."""


def _portable(error: Exception) -> tuple[Exception, str]:
    """The exception for another process, and its traceback."""
    text = "".join(traceback.format_exception(error))
    try:
        found = pickle.loads(pickle.dumps(error))
    except Exception:
        found = VcycleError(f"{type(error).__name__}: {error}")
    return found, text
