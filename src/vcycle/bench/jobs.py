"""Trains the runs of a study several at a time: each in a process of its own, with its GPU or its share of the cores.

The process of the study alone writes results and talks to the user. A signal reaches it and is passed on once: the
trainings finish their step and save it, as one training does.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from vcycle.bench.runs import FATAL, Arm, ArmRun, Failure, attempt
from vcycle.config.recipe import RecipeBase
from vcycle.errors import VcycleError
from vcycle.train import stopping
from vcycle.utils.cores import cores
from vcycle.utils.processes import end_with_parent

__all__ = ["Jobs", "Tell", "Trainer", "most_jobs", "train_at_once"]

Tell = Callable[[str, Any], None]
"""Sends the study's process a message with its kind: `message`, or `step` with the steps taken."""
Trainer = Callable[[Tell], Callable[[Arm, int], ArmRun]]
"""Makes the function that trains an arm with a seed."""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """How many trainings there are at a time, and what each may use."""

    number: int
    threads: int
    """Threads that each computes with, where the recipe leaves them open."""
    gpus: tuple[str, ...] = ()
    """The visible GPUs, as `CUDA_VISIBLE_DEVICES` names them; jobs take them in turn."""

    @classmethod
    def of(cls, number: int, recipe: RecipeBase) -> "Jobs":
        """The jobs of this machine for a recipe.

        Raises:
            VcycleError: if there are more jobs than cores.
        """
        if number > cores():
            raise VcycleError(f"{number} trainings at a time: this process has {cores()} cores, and each needs one")
        return cls(number=number, threads=max(1, cores() // number), gpus=() if recipe.run.device == "cpu" else _gpus())

    def own(self, recipe: RecipeBase) -> RecipeBase:
        """The recipe with the threads of a job."""
        if self.number == 1 or recipe.run.threads != "auto":
            return recipe
        return recipe.model_copy(update={"run": recipe.run.model_copy(update={"threads": self.threads})})


def most_jobs(recipe: RecipeBase, trainings: int, *, most: int = 4) -> int:
    """As many trainings at a time as this machine has GPUs for the recipe, or else cores."""
    gpus = () if recipe.run.device == "cpu" else _gpus()
    return max(1, min(len(gpus) or cores(), cores(), trainings, most))


def _gpus() -> tuple[str, ...]:
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return tuple(given.split(",") if given else map(str, range(count)))[:count]


@dataclass(kw_only=True)
class _Worker:
    process: Any
    connection: Connection
    arm: Arm | None = None
    seed: int = 0
    steps: int = 0
    """Taken of the training at hand."""

    def begin(self, arm: Arm, seed: int) -> None:
        self.arm, self.seed, self.steps = arm, seed, 0
        self.connection.send((arm, seed))


def train_at_once(
    wanted: Sequence[tuple[Arm, int]],
    *,
    jobs: Jobs,
    trainer: Trainer,
    on_start: Callable[[Arm, int], None],
    on_progress: Callable[[str, int, int], None],
    on_message: Callable[[str], None],
) -> Iterator[ArmRun | Failure]:
    """Train each arm with its seed, several at a time, and yield what becomes of each when it ends.

    Args:
        wanted: The arms and seeds.
        jobs: How many at a time.
        trainer: Makes what trains, in each process; the function and what it holds are pickled.
        on_start: Called with the arm and seed when a training starts.
        on_progress: Called with the steps taken of all trainings.
        on_message: Called with messages for the user.

    Raises:
        RecipeError, PlanError, CheckpointError: if a training meets one.
        VcycleError: if a process ends before its training.
    """
    waiting = list(wanted)
    total, before = sum(len(arm.plan) for arm, _ in wanted), 0
    workers = [_started(place, jobs, trainer) for place in range(min(jobs.number, len(waiting)))]

    def next_for(worker: _Worker) -> None:
        worker.arm = None
        if waiting:
            arm, seed = waiting.pop(0)
            worker.begin(arm, seed)
            on_start(arm, seed)

    try:
        for worker in workers:
            next_for(worker)
        while busy := [worker for worker in workers if worker.arm is not None]:
            for worker in _heard(busy):
                assert worker.arm is not None
                kind, content = _received(worker)
                if kind == "message":
                    on_message(content)
                elif kind == "raised":
                    raise content
                elif kind == "step":
                    worker.steps = content
                    on_progress("steps of all trainings", before + sum(each.steps for each in busy), total)
                else:
                    before += len(worker.arm.plan)
                    worker.steps = 0
                    next_for(worker)
                    yield content
    except KeyboardInterrupt as stopped:
        number = getattr(stopped, "signal", signal.SIGINT)
        on_message(f"{number.name}: the trainings finish and save their step; Ctrl-C again stops at once")
        _pass_on(workers, number)
        raise
    finally:
        for worker in workers:
            worker.connection.close()  # an idle one ends
        for worker in workers:
            if worker.arm is not None:
                worker.process.terminate()  # saves its step
            worker.process.join()


def _heard(busy: Sequence[_Worker]) -> list[_Worker]:
    ready = wait([worker.connection for worker in busy])
    return [worker for worker in busy if worker.connection in ready]


def _received(worker: _Worker) -> tuple[str, Any]:
    """The next message of a worker.

    Raises:
        VcycleError: if it has ended.
    """
    try:
        found: tuple[str, Any] = worker.connection.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        code, arm = worker.process.exitcode, worker.arm
        worker.arm = None
        assert arm is not None
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        raise VcycleError(
            f"the process that trained {arm.name}, seed {worker.seed}, ended {how}; the same command resumes the study"
        ) from None
    return found


def _pass_on(workers: Sequence[_Worker], number: signal.Signals) -> None:
    """Have the trainings finish their step and save it; a second Ctrl-C ends them at once."""
    while busy := [worker for worker in workers if worker.arm is not None]:
        for worker in busy:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, number)
        try:
            for worker in busy:
                worker.process.join()
                worker.arm = None
        except KeyboardInterrupt:
            number = signal.SIGINT


def _started(place: int, jobs: Jobs, trainer: Trainer) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    gpu = jobs.gpus[place % len(jobs.gpus)] if jobs.gpus else None
    process = context.Process(target=_work, args=(theirs, os.getpid(), trainer, gpu))
    process.start()
    theirs.close()
    return _Worker(process=process, connection=ours)


def _work(connection: Connection, parent: int, trainer: Trainer, gpu: str | None) -> None:
    """Train what the study's process asks for, until it asks no more."""
    os.setpgid(0, 0)  # Ctrl-C of a terminal reaches the study's process, which passes it on
    end_with_parent(parent)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        with stopping.signals(), suppress(EOFError, ConnectionError):
            _train_asked(connection, trainer)
    except KeyboardInterrupt:
        sys.exit(0)  # the step is saved


def _train_asked(connection: Connection, trainer: Trainer) -> None:
    def tell(kind: str, content: Any) -> None:
        connection.send((kind, content))

    train = None
    while True:
        arm, seed = connection.recv()
        try:
            train = train or trainer(tell)
            found = attempt(arm, seed, train)
        except FATAL as error:
            tell("raised", type(error)(str(error)))
        else:
            tell("ended", found)
