"""Training steps as training takes them, on clips that lie there already."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vcycle.nn import apply, convert_batchnorm, freeze
from vcycle.plan import BatchShape, Plan
from vcycle.recipes.build import build_model, settings_of, task_of
from vcycle.recipes.opened import without_downloads
from vcycle.recipes.schema import Recipe
from vcycle.train.loop import make_fabric
from vcycle.train.optimizer import OptimizerSpec

__all__ = ["Parts", "Run", "Stepper", "model_of"]


class Run(NamedTuple):
    """Steps in a row, without a look between them: where there is a device, the host runs ahead of it."""

    seconds: float
    """On the clock, for one step."""
    launch: float
    """Of it, until all was handed to the device; on a CPU, the same."""
    memory: int | None
    """The most bytes of the device's memory in use at once; None on a CPU."""


class Parts(NamedTuple):
    """Seconds of one step, part by part, each waited for."""

    forward: float
    backward: float
    optimizer: float


def model_of(recipe: Recipe, classes: int) -> nn.Module:
    """The recipe's model, frozen as in training; its weights are as drawn, as times do not depend on them."""
    return freeze(build_model(without_downloads(recipe), classes, recipe.run.seed), recipe.training.freeze)


class Stepper:
    """A recipe's model, loss and optimizer, fed with noise."""

    def __init__(self, recipe: Recipe, plan: Plan, classes: int) -> None:
        """Build what is trained.

        Args:
            recipe: The recipe.
            plan: Any of its plans: the first step's LR and roles are used at every shape.
            classes: Outputs of the model.

        Raises:
            VcycleError: as training does, for a device or a precision that cannot be used.
        """
        settings = settings_of(recipe)
        self._fabric = make_fabric(settings)
        self.device = self._fabric.device
        self.precision = settings.precision
        self._task = task_of(recipe, classes)
        self._first = plan[0]
        model = convert_batchnorm(model_of(recipe, classes), self._first.bn_batch)
        self._model = model.to(memory_format=torch.channels_last_3d).train()
        self._plain = OptimizerSpec(**recipe.optimizer.model_dump()).build(self._model)
        self._forward, self._optimizer = self._fabric.setup(self._model, self._plain)
        self._batch: tuple[BatchShape, Tensor, Tensor] | None = None

    def run(self, shape: BatchShape, steps: int) -> Run:
        """Take some steps at a batch shape."""
        clips, labels = self._noise(shape)
        on_device = self.device.type == "cuda"
        if on_device:
            torch.cuda.reset_peak_memory_stats(self.device)
        began = self._now()
        for _ in range(steps):
            self._fabric.backward(self._task.loss(self._forward, clips, labels))
            self._update()
        launched = time.perf_counter()
        ended = self._now()
        memory = torch.cuda.max_memory_allocated(self.device) if on_device else None
        return Run((ended - began) / steps, (launched - began) / steps, memory)

    def parts(self, shape: BatchShape) -> Parts:
        """Take one step at a batch shape, and wait for each of its parts."""
        clips, labels = self._noise(shape)
        times = [self._now()]
        loss = self._task.loss(self._forward, clips, labels)
        times.append(self._now())
        self._fabric.backward(loss)
        times.append(self._now())
        self._update()
        times.append(self._now())
        return Parts(*(after - before for before, after in pairwise(times)))

    def _update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _noise(self, shape: BatchShape) -> tuple[Tensor, Tensor]:
        """A batch on the device; the last one's is kept."""
        apply(
            replace(self._first, shape=shape.shape, batch=shape.batch, bn_batch=shape.bn_batch),
            self._model,
            self._plain,
        )
        if self._batch is None or self._batch[0] != shape:
            self._batch = None  # before there is another
            size = (shape.batch, *shape.shape, 3)
            clips = torch.randint(0, 256, size, dtype=torch.uint8, device=self.device)
            classes = self._task.classes
            labels = torch.randint(0, classes, (shape.batch,), device=self.device)
            if self._task.multi_label:
                labels = torch.nn.functional.one_hot(labels, classes).float()
            self._batch = shape, clips, labels
        return self._batch[1:]

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
