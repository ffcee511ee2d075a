"""Training steps as training takes them, on clips that lie in memory or as they come from a loader."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vcycle.bench.memory import forget_peak, peak_bytes
from vcycle.bench.steps.workload import Workload
from vcycle.data import Batch
from vcycle.data.batch import pin
from vcycle.plan import BatchShape, Plan, Step
from vcycle.train.accelerator import make_accelerator
from vcycle.train.objective import Objective, noise_batch
from vcycle.train.run import RunFolder
from vcycle.train.setup import set_up

__all__ = ["Parts", "Run", "Stepper"]


class Run(NamedTuple):
    """Steps in a row, without a look between them: where there is a device, the host runs ahead of it."""

    seconds: float
    """On the clock, for one step."""
    cpu: float
    """Of this process's processor time, for one step."""
    launch: float
    """Of the time on the clock, until all was handed to the device; on a CPU, all of it."""
    waited: float = 0.0
    """Of the time on the clock, waiting for a batch."""
    memory: int | None = None
    """The most bytes of the device's memory in use at once; on a CPU, of this process."""


class Parts(NamedTuple):
    """Seconds of one step, part by part, each waited for."""

    forward: float
    """The batch's way to the device included."""
    backward: float
    optimizer: float


class Stepper:
    """A recipe's model, loss and optimizer, and what feeds them."""

    def __init__(self, workload: Workload, plan: Plan) -> None:
        """Build what is trained.

        Args:
            workload: What.
            plan: Any of its plans: the last step's LR, and nothing frozen any more, are used at every shape.

        Raises:
            VcycleError: as training does, for a device or a precision that cannot be used.
        """
        model = workload.build()
        accelerator = make_accelerator(workload.config.run, model)
        self.device = accelerator.device
        self.precision = workload.config.run.precision
        self._template = plan[len(plan) - 1]
        self._task = _Marked(workload.objective, self._now)
        state, self._update = set_up(
            workload.config,
            accelerator,
            plan=plan,
            model=model.train(),
            objective=self._task,
            run=RunFolder(Path()),
            role_of=workload.role_of,
        )
        state.optimizer.register_step_pre_hook(lambda *_: self._task.mark())
        self._noise: tuple[BatchShape, Batch] | None = None

    def make_ready(self, shape: BatchShape) -> None:
        """Have a batch shape compiled or recorded, where it is to be: training does it before its clock runs."""
        if not self._update.is_ready(shape):
            self._update.attempt(self._at(shape), self._noise_of(shape))

    def run(self, shape: BatchShape, steps: int, batches: Callable[[], Batch] | None = None) -> Run:
        """Take some steps at a batch shape.

        Args:
            shape: Of the batches.
            steps: How many.
            batches: Gives the next batch, on the host; by default one of noise that lies there.
        """
        step = self._at(shape)
        if batches is None:
            noise = self._noise_of(shape)
            batches = lambda: noise  # noqa: E731
        forget_peak(self.device)
        waited = 0.0
        began, cpu = self._now(), time.process_time()
        for _ in range(steps):
            asked = time.perf_counter()
            batch = batches()
            waited += time.perf_counter() - asked
            self._update(step, batch)
        launched = time.perf_counter()
        ended = self._now()
        return Run(
            (ended - began) / steps,
            (time.process_time() - cpu) / steps,
            (launched - began) / steps,
            waited / steps,
            peak_bytes(self.device),
        )

    def parts(self, shape: BatchShape) -> Parts | None:
        """Take one step at a batch shape, and wait for each of its parts; None where it has no parts to wait for."""
        step, noise = self._at(shape), self._noise_of(shape)
        self._task.marks = []
        began = self._now()
        self._update(step, noise)
        ended = self._now()
        marks, self._task.marks = self._task.marks, None
        if len(marks) != 2:  # several micro-batches, or a recording that was played back
            return None
        return Parts(marks[0] - began, marks[1] - marks[0], ended - marks[1])

    def _at(self, shape: BatchShape) -> Step:
        return replace(self._template, shape=shape.shape, batch=shape.batch, bn_batch=shape.bn_batch)

    def _noise_of(self, shape: BatchShape) -> Batch:
        """A batch as a loader gives it; the last one's is kept."""
        if self._noise is None or self._noise[0] != shape:
            self._noise = None  # before there is another
            noise = noise_batch(self._task, shape.batch, shape.shape)
            self._noise = shape, pin(noise) if self.device.type == "cuda" else noise
        return self._noise[1]

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class _Marked:
    """A task that can note when its loss is computed."""

    def __init__(self, task: Objective, now: Callable[[], float]) -> None:
        self._task, self._now = task, now
        self.mixes = task.mixes
        self.check, self.noise, self.predict = task.check, task.noise, task.predict
        self.marks: list[float] | None = None
        """Where the times go; None where nobody asks."""

    def mark(self) -> None:
        if self.marks is not None:
            self.marks.append(self._now())

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, /, *, block: int | None = None) -> Tensor:
        loss = self._task.loss(model, clips, labels, block=block)
        self.mark()
        return loss
