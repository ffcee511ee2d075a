"""Runs real training steps, on clips in memory or from a loader."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vcycle.bench.memory import forget_peak, peak_bytes
from vcycle.bench.steps.workload import Workload
from vcycle.data import Batch
from vcycle.data.batch import pin
from vcycle.nn.batchnorm import sub_batch_layers
from vcycle.plan import BatchShape, Plan, Step
from vcycle.train.accelerator import make_accelerator
from vcycle.train.objective import Objective, noise_batch
from vcycle.train.run import RunFolder
from vcycle.train.setup import set_up

__all__ = ["Parts", "Run", "Stepper"]


class Parts(NamedTuple):
    """Seconds of one step by part, with synchronization after each."""

    forward: float
    """Includes the transfer of the batch to the device."""
    backward: float
    optimizer: float


class Run(NamedTuple):
    """Times of consecutive steps without synchronization between them: the host runs ahead of a device."""

    seconds: float
    """Wall-clock seconds per step."""
    cpu: float
    """CPU seconds of this process per step."""
    launch: float
    """Wall-clock seconds per step until all kernels are launched; on a CPU, the whole step."""
    waited: float = 0.0
    """Wall-clock seconds per step waiting for a batch."""
    memory: int | None = None
    """Peak memory of the device in bytes; on a CPU, of this process."""
    parts: Parts | None = None
    """The parts of the last step, on a CPU, where marks between them delay nothing; None if it cannot be split."""


class Stepper:
    """A recipe's model, loss and optimizer, ready to run steps."""

    def __init__(self, workload: Workload, plan: Plan, *, micro: Mapping[BatchShape, int] | None = None) -> None:
        """Build the model and its training state.

        Args:
            workload: The model and its training.
            plan: Any of its plans; every shape uses the last step's LR, with nothing frozen.
            micro: Micro-batch sizes in clips, by batch shape; by default each batch is computed at once.

        Raises:
            VcycleError: as in training, for an unsupported device or precision.
        """
        model, self.config = workload.build(), workload.config
        accelerator = make_accelerator(self.config.run, model)
        self.device = accelerator.device
        self.precision = self.config.run.precision
        self._template = plan[len(plan) - 1]
        self._task = _Marked(workload.objective, self._now)
        state, self._update = set_up(
            self.config,
            accelerator,
            plan=plan,
            model=model.train(),
            objective=self._task,
            run=RunFolder(Path()),
            role_of=workload.role_of,
        )
        self._update.micro.update(micro or {})
        state.optimizer.register_step_pre_hook(lambda *_: self._task.mark())
        self._noise: tuple[BatchShape, Batch] | None = None
        self.has_batchnorm = any(True for _ in sub_batch_layers(model))
        """Whether shapes that differ in BatchNorm's groups alone differ in time."""

    def make_ready(self, shape: BatchShape) -> None:
        """Compile or record a batch shape if the recipe asks for it; training does so before its clock starts."""
        if not self._update.is_ready(shape):
            self._update.attempt(self._at(shape), self._noise_of(shape))

    def run(self, shape: BatchShape, steps: int, batches: Callable[[], Batch] | None = None) -> Run:
        """Run steps at a batch shape.

        Args:
            shape: The batch shape.
            steps: Number of steps.
            batches: Returns the next batch, on the host; by default a dummy batch of noise.
        """
        step = self._at(shape)
        if batches is None:
            noise = self._noise_of(shape)
            batches = lambda: noise  # noqa: E731
        forget_peak(self.device)
        waited = 0.0
        began, cpu = self._now(), time.process_time()
        for number in range(steps):
            asked = time.perf_counter()
            batch = batches()
            loaded = time.perf_counter()
            waited += loaded - asked
            if number == steps - 1 and self.device.type == "cpu":
                self._task.marks = []
            self._update(step, batch)
        launched = time.perf_counter()
        ended = self._now()
        return Run(
            (ended - began) / steps,
            (time.process_time() - cpu) / steps,
            (launched - began) / steps,
            waited / steps,
            peak_bytes(self.device),
            self._parts(loaded, ended),
        )

    def parts(self, shape: BatchShape) -> Parts | None:
        """Run one step at a batch shape and time each part; None if the step cannot be split."""
        step, noise = self._at(shape), self._noise_of(shape)
        self._task.marks = []
        began = self._now()
        self._update(step, noise)
        ended = self._now()
        return self._parts(began, ended)

    def _parts(self, began: float, ended: float) -> Parts | None:
        """The parts of a step whose marks were recorded."""
        marks, self._task.marks = self._task.marks, None
        if marks is None or len(marks) != 2:  # several micro-batches, or a replayed CUDA graph
            return None
        return Parts(marks[0] - began, marks[1] - marks[0], ended - marks[1])

    def _at(self, shape: BatchShape) -> Step:
        return self._template.at(shape)

    def _noise_of(self, shape: BatchShape) -> Batch:
        """A dummy batch as from a loader; the last one is cached."""
        if self._noise is None or self._noise[0] != shape:
            self._noise = None  # free it before allocating another
            noise = noise_batch(self._task, shape.batch, shape.shape)
            self._noise = shape, pin(noise) if self.device.type == "cuda" else noise
        return self._noise[1]

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class _Marked:
    """A task that can record when its loss is computed."""

    def __init__(self, task: Objective, now: Callable[[], float]) -> None:
        self._task, self._now = task, now
        self.mixes = task.mixes
        self.check, self.noise, self.predict = task.check, task.noise, task.predict
        self.marks: list[float] | None = None
        """Recorded times; None to record nothing."""

    def mark(self) -> None:
        if self.marks is not None:
            self.marks.append(self._now())

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, /, *, block: int | None = None) -> Tensor:
        loss = self._task.loss(model, clips, labels, block=block)
        self.mark()
        return loss
