"""The training loop: one pass over a plan, resumable at any step.

Nothing that varies is kept as state: shapes, LR, samples, crops and dropout are functions of the step. What a
checkpoint holds is what was *learned*.
"""

import json
import math
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from vcycle.data import Batch, Batches, PairedSample, loader
from vcycle.data.superres.dataset import as_batch
from vcycle.errors import VcycleError
from vcycle.nn import apply, bf16_conv3d_is_sound, convert_batchnorm, set_bn_batch
from vcycle.plan import Plan, Step
from vcycle.train.clock import Clock
from vcycle.train.ema import Ema, EmaSpec
from vcycle.train.journal import Journal
from vcycle.train.log import RunLog, Watched
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.outcome import Evaluation, Fitted, Point, StepReport, Totals
from vcycle.train.precise_bn import precise_plan, recompute_statistics
from vcycle.train.run import RunFolder
from vcycle.train.state import TrainState
from vcycle.train.waiting import Waiting

__all__ = ["Settings", "Task", "fit", "make_fabric"]


class Task(Protocol):
    """What the loop asks of a task. Labels are whatever a model's output is compared with."""

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, /) -> Tensor:
        """The mean loss of a batch."""
        ...

    def check(self, labels: Tensor, /) -> None:
        """Refuse labels, still on the host, that are not of this task."""
        ...

    def predict(self, model: nn.Module, clips: Tensor, /) -> Tensor:
        """What a model makes of a batch's clips, without augmentation."""
        ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run is carried out; of these, only the seed and the precision change its result."""

    seed: int = 0
    """Keys the order of samples, crops and dropout."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto`: a GPU where there is one."""
    precision: str = "fp32"
    """`fp32`, or `bf16` (autocast)."""
    workers: int = 0
    """Processes that load clips; 0 loads in this one."""
    timeout: float = 60.0
    """Seconds that a worker may take over a clip before it is replaced, and the clip as well."""
    prefetch: int | None = None
    """Clips to load ahead, by default 4 for each worker; never less than two batches."""
    validate_every: float = 1.0
    """Epochs of samples between validations."""
    save_every: int = 500
    """Steps between checkpoints."""
    bad_limit: float = 0.05
    """The share of unreadable samples above which the run stops."""
    tensorboard: bool = False
    """Whether to write TensorBoard's event files beside the JSON lines."""


def make_fabric(settings: Settings, model: nn.Module | None = None) -> Fabric:
    """One device, as Lightning Fabric drives it.

    Args:
        settings: Which device and precision.
        model: What is to be trained; one without 3-D convolutions needs none that can be trusted.

    Raises:
        VcycleError: if the device is not there, or its arithmetic cannot be trusted at this precision.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("run.device is cuda, and torch finds no CUDA device: cpu or auto")
    accelerator = "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"
    conv3d = model is None or any(isinstance(module, nn.Conv3d) for module in model.modules())
    if settings.precision == "bf16" and conv3d and not bf16_conv3d_is_sound(torch.device(accelerator)):
        raise VcycleError(
            f"run.precision is bf16, and this {accelerator} computes wrong conv3d weight gradients in bf16 for clips "
            "of few frames, which coarse grids have: fp32"
        )
    precision: Any = {"fp32": "32-true", "bf16": "bf16-mixed"}[settings.precision]
    return Fabric(accelerator=accelerator, devices=1, precision=precision)


def fit(
    *,
    plan: Plan,
    model: nn.Module,
    dataset: Any,
    task: Task,
    optimizer: OptimizerSpec,
    run: RunFolder,
    settings: Settings,
    recipe: str | None = None,
    classes: Sequence[str] | None = None,
    precise_bn: int | None = None,
    ema: EmaSpec | None = None,
    role_of: Callable[[str], str | None] = lambda _: None,
    watch: Callable[[nn.Module], Watched | None] = lambda _: None,
    resume: bool = False,
    validate: Callable[[nn.Module, torch.device], Evaluation] | None = None,
    evaluation: Callable[..., Evaluation] | None = None,
    on_step: Callable[[StepReport], None] = lambda _: None,
    on_point: Callable[[Point], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Train a model under a plan.

    Args:
        plan: What to do at every step.
        model: What the task trains; its BatchNorms are converted in place.
        dataset: Gives a `vcycle.data.Sample` (or `PairedSample`) for a `SampleRequest`, as `VideoDataset` does.
        task: The loss.
        optimizer: Which optimizer.
        run: The run's folder.
        settings: How to carry it out.
        recipe: The resolved recipe, written beside the run.
        classes: Names of the classes, written beside the run.
        precise_bn: Clips over which BatchNorm's running statistics are recomputed before each validation and at the
            end; by default training's own are used.
        ema: Averages the weights over the steps; the average is then what is evaluated and given back.
        role_of: The plan's role of a parameter, by its name.
        watch: Tells of the step just done what training does not recover from, if there is such a thing.
        resume: Go on from the newest checkpoint in the folder, or start if there is none.
        validate: Evaluates the model; called every `validate_every` epochs of samples and at the end.
        evaluation: Makes what it gives of its fields again, as a resumed run has to.
        on_step: Told of every step.
        on_point: Told of every validation.
        on_message: Told what a user should know: a bad sample, a checkpoint passed over.

    Raises:
        CheckpointError: if the checkpoint belongs to another plan or model, or cannot be written.
        DataError: if more samples are unreadable than `bad_limit` allows, or labels are not of the task.
        VcycleError: if the loss is not finite, or the folder already holds a run.
    """
    fabric = make_fabric(settings, model)
    goes_on = run.prepare(plan, recipe, resume=resume, classes=classes)
    convert_batchnorm(model, plan[0].bn_batch)
    model = _laid_out(model)
    state = TrainState(run=run, plan=plan, seed=settings.seed, model=model, optimizer=optimizer.build(model, role_of))
    update = _Update(fabric, task, state)
    state.ema = None if ema is None else Ema(model, ema)
    best = model if state.ema is None else state.ema.model
    start = state.restore(on_message, evaluation or _nothing_evaluated) if goes_on else 0
    if not goes_on:
        if resume:
            on_message(f"nothing to resume in {run.path}: starting from the beginning")
        # A full disk or a folder that cannot be written to shows before anything is trained.
        state.save(0)
    totals = state.totals
    with ExitStack() as stack:
        log = stack.enter_context(RunLog(run, start=start, device=fabric.device, tensorboard=settings.tensorboard))
        journal = stack.enter_context(_journal(state, settings, start, on_message))
        batches = _batches(plan, dataset, settings, start, journal, pin_memory=fabric.device.type == "cuda")
        stack.callback(batches.close)

        def tell_of_waiting(step: Step, message: str) -> None:
            log.slow_data(step, message)
            on_message(message)

        waiting = Waiting(totals, plan, workers=settings.workers, on_slow=tell_of_waiting)
        clock = Clock(totals)
        recompute = None if precise_bn is None else _precise(update, state, dataset, precise_bn, settings, journal)
        if precise_bn is not None and len(dataset) < precise_bn and start < len(plan):
            on_message(f"precise_bn is {precise_bn:,} clips, and there are {len(dataset):,} to take them from")
        model.train()
        for step in plan.iterate(start):
            batch, waited = _timed(batches)
            journal.count(batch)
            loss = update(step, batch)
            took = clock.lap()
            totals.data_seconds += waited
            waiting.count(step, batches.spent, data_seconds=waited, seconds=took)
            log.step(step, batch, loss, data_seconds=waited, seconds=took, watched=watch(model))
            on_step(StepReport(step=step, work=_work(plan, step), data_seconds=waited, seconds=took))
            done = step.index + 1
            validating = validate is not None and _validation_is_due(plan, done, settings.validate_every)
            saving = done == len(plan) or done % settings.save_every == 0
            if validating or saving:
                log.flush()  # waits for the device: the time until here is training
                with clock.paused():
                    if recompute is not None and (validating or done == len(plan)):
                        recompute()
                    if validate is not None and validating:
                        totals.curve.append(_point(plan, done, totals, validate(best, fabric.device)))
                        log.validation(totals.curve[-1])
                        on_point(totals.curve[-1])
                    if saving:
                        journal.sync()
                        state.save(done)
    return Fitted(
        model=best,
        steps=len(plan),
        samples=plan.samples,
        seconds=totals.seconds,
        cpu_seconds=totals.cpu_seconds,
        data_seconds=totals.data_seconds,
        replaced=totals.replaced,
        curve=totals.curve,
        waiting=totals.waiting,
    )


class _Update:
    """One optimizer update, on the device and at the precision that Fabric was asked for."""

    def __init__(self, fabric: Fabric, task: Task, state: TrainState) -> None:
        self._fabric, self._task, self._state = fabric, task, state
        self._forward, self._optimizer = fabric.setup(state.model, state.optimizer)

    def __call__(self, step: Step, batch: Batch) -> Tensor:
        """Learn from a batch: its loss, still on the device."""
        self._task.check(batch.labels)
        apply(step, self._state.model, self._state.optimizer)
        torch.manual_seed(_step_seed(self._state.seed, step.index))
        clips, labels = self._fabric.to_device((batch.clips, batch.labels))
        loss = self._task.loss(self._forward, clips, labels)
        self._fabric.backward(loss)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._state.ema is not None:
            self._state.ema.update(self._state.model, step.batch)
        return loss.detach()

    def predict(self, batch: Batch) -> Tensor:
        """What the model makes of a batch."""
        return self._task.predict(self._forward, self._fabric.to_device(batch.clips))


def _laid_out(model: nn.Module) -> nn.Module:
    """The model with the weights of its 3-D convolutions as its clips lie in memory: channels last."""
    if any(parameter.ndim == 5 for parameter in model.parameters()):
        return model.to(memory_format=torch.channels_last_3d)
    return model


def _precise(
    update: _Update, state: TrainState, dataset: Any, clips: int, settings: Settings, journal: Journal
) -> Callable[[], None]:
    """What recomputes BatchNorm's running statistics: each time from the same clips, the first of the stream."""
    plan = precise_plan(state.plan, min(clips, len(dataset)))

    def predict(batch: Batch) -> None:
        journal.mention(batch)
        update.predict(batch)

    def recompute() -> None:
        set_bn_batch(state.model, plan[0].bn_batch)  # until the next step sets its own
        batches = iter(loader(dataset, plan, seed=settings.seed, workers=settings.workers, timeout=settings.timeout))
        try:
            recompute_statistics(state.model, batches, predict)
        finally:
            batches.close()

    return recompute


def _journal(state: TrainState, settings: Settings, start: int, on_message: Callable[[str], None]) -> Journal:
    return Journal(
        state.run.bad_samples,
        state.totals,
        first=state.plan.samples_before(start),
        clips=state.plan.baseline.clips,
        limit=settings.bad_limit,
        on_message=on_message,
    )


def _batches(
    plan: Plan, dataset: Any, settings: Settings, start: int, journal: Journal, *, pin_memory: bool
) -> Batches:
    """The batches from a step on. They stay with the host, which looks at their samples; `_Update` moves them."""
    return iter(
        loader(
            dataset,
            plan,
            seed=settings.seed,
            start=start,
            workers=settings.workers,
            timeout=settings.timeout,
            prefetch=settings.prefetch,
            replaced=journal.replacements,
            pin_memory=pin_memory,
        )
    )


def _timed(batches: Batches) -> tuple[Batch, float]:
    """The next batch, and how long it was waited for in seconds."""
    began = time.perf_counter()
    loaded: Batch | PairedSample = next(batches)
    batch = as_batch(loaded) if isinstance(loaded, PairedSample) else loaded
    return batch, time.perf_counter() - began


def _validation_is_due(plan: Plan, done: int, every: float) -> bool:
    """Whether the step before `done` was the last, or passed a multiple of `every` epochs."""
    before, after = plan.epochs_before(done - 1), plan.epochs_before(done)
    return done == len(plan) or math.floor(after / every) > math.floor(before / every)


def _nothing_evaluated(**_: Any) -> Evaluation:
    raise TypeError("fit(evaluation=...) is needed to resume a run that has been evaluated")


def _point(plan: Plan, done: int, totals: Totals, evaluation: Evaluation) -> Point:
    return Point(step=done, samples=plan.samples_before(done), seconds=totals.seconds, evaluation=evaluation)


def _work(plan: Plan, step: Step) -> float:
    return step.batch * step.shape.voxels / plan.baseline_shape.voxels


def _step_seed(seed: int, step: int) -> int:
    """The device generator's seed at a step: dropout is keyed too, so that nothing is left to save."""
    return zlib.crc32(json.dumps([seed, step]).encode()) | (step << 32)
