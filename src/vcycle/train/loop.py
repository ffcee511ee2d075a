"""The training loop: one pass over a plan, resumable at any step.

Nothing that varies is kept as state: shapes, LR, samples, crops and dropout are functions of the step. What a
checkpoint holds is what was *learned*.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor, nn

from vcycle.data import Batch, Batches, loader
from vcycle.data.superres.dataset import as_batch
from vcycle.errors import CheckpointError, VcycleError
from vcycle.nn import convert_batchnorm, set_bn_batch
from vcycle.plan import Plan, Step
from vcycle.train import stopping
from vcycle.train.clock import Clock
from vcycle.train.ema import Ema, EmaSpec
from vcycle.train.environment import record_environment
from vcycle.train.fitting import Fitting, FitWhen
from vcycle.train.journal import Journal
from vcycle.train.lock import claimed
from vcycle.train.log import RunLog, Watched
from vcycle.train.memory import grow_in_place
from vcycle.train.nonfinite import Skips
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.outcome import Evaluation, Fitted, Point, StepReport, Totals
from vcycle.train.precise_bn import precise_plan, recompute_statistics
from vcycle.train.precision import precision_of
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.ready import make_ready
from vcycle.train.run import RunFolder
from vcycle.train.speed import Speed, let_cudnn_choose
from vcycle.train.state import TrainState
from vcycle.train.stopping import Stop, Stopped
from vcycle.train.update import Task, Update, refuse_shared_mixing
from vcycle.train.waiting import Waiting
from vcycle.train.watchdog import COMPUTING, DATA, EVALUATING, OTHERS, SAVING, Watchdog

__all__ = ["Settings", "Task", "fit", "make_fabric", "set_up"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run is carried out; of these, only the seed, the precision and the compression change its result."""

    seed: int = 0
    """Keys the order of samples, crops and dropout."""
    device: str = "auto"
    """`cpu`, `cuda`, or `auto`: a GPU where there is one."""
    precision: str = "fp32"
    """`fp32`, or `bf16` or `fp16` (autocast)."""
    compile: bool = False
    """Whether to compile the model, once for each batch shape."""
    graphs: bool = False
    """Whether to record each batch shape's forward and backward as a CUDA graph."""
    compress: Literal["fp16", "bf16"] | None = None
    """What gradients are rounded to on their way between ranks; by default not at all."""
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
    bad_steps: int = 10
    """Updates in a row that may be skipped because they would not be finite."""
    watchdog: float | None = 10.0
    """Minutes without a step after which it is said where every thread is."""
    fit: FitWhen = "auto"
    """Whether to try each batch shape before the first step: `always`, `never`, or `auto`: on a GPU."""


def make_fabric(settings: Settings, model: nn.Module | None = None, ranks: Ranks | None = None) -> Fabric:
    """One device, as Lightning Fabric drives it.

    Args:
        settings: Which device and precision.
        model: What is to be trained; one without 3-D convolutions needs none that can be trusted.
        ranks: The ranks that train together, each on a device of its own.

    Raises:
        VcycleError: if the device is not there, or its arithmetic cannot be trusted at this precision.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("run.device is cuda, and torch finds no CUDA device: cpu or auto")
    accelerator = "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"
    if accelerator == "cuda":
        grow_in_place()
        let_cudnn_choose()
    precision = precision_of(settings.precision, accelerator, model)
    local = 0 if ranks is None else ranks.local
    if accelerator == "cuda" and local >= torch.cuda.device_count():
        raise VcycleError(
            f"rank {local} of this machine has no GPU of its own: there are {torch.cuda.device_count()}; as many "
            "processes or fewer are accepted (torchrun --nproc-per-node)"
        )
    # Fabric is to see this one process, whatever started it: ranks are the update's matter.
    return Fabric(
        accelerator=accelerator,
        devices=[local] if accelerator == "cuda" else 1,
        plugins=[LightningEnvironment(), precision],
    )


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
    ranks: Ranks = ALONE,
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
        ranks: The ranks that train together, all of which call this with the same; the first writes the run's folder.
        validate: Evaluates the model; called every `validate_every` epochs of samples and at the end, on every rank,
            where it gives the same.
        evaluation: Makes what it gives of its fields again, as a resumed run has to.
        on_step: Told of every step.
        on_point: Told of every validation.
        on_message: Told what a user should know: a bad sample, a checkpoint passed over.

    Raises:
        CheckpointError: if the checkpoint belongs to another plan or model, or cannot be written.
        DataError: if more samples are unreadable than `bad_limit` allows, or labels are not of the task.
        VcycleError: if the loss is not finite over and over, or the folder already holds a run.
        Stopped: if a signal has asked for an end, within `vcycle.train.stopping.signals`.
    """
    fabric = make_fabric(settings, model, ranks)
    refuse_shared_mixing(task, plan, ranks)
    say: Callable[[str], None] = on_message if ranks.first else _say_nothing
    goes_on = ranks.from_first(lambda: run.prepare(plan, recipe, resume=resume, classes=classes))
    with ExitStack() as stack:
        ranks.from_first(lambda: stack.enter_context(claimed(run.path, say)))
        state, update = set_up(
            fabric,
            plan=plan,
            model=model,
            task=task,
            optimizer=optimizer,
            run=run,
            settings=settings,
            ranks=ranks,
            ema=ema,
            role_of=role_of,
            on_message=say,
        )
        model = state.model
        best = model if state.ema is None else state.ema.model
        start = state.restore(say, evaluation or _nothing_evaluated) if goes_on else 0
        _refuse_unequal(start, ranks, run)
        if not goes_on:
            if resume:
                say(f"nothing to resume in {run.path}: starting from the beginning")
            # A full disk or a folder that cannot be written to shows before anything is trained.
            if ranks.first:
                state.save(0)
        totals = state.totals
        stop = stopping.current()
        ranks.from_first(lambda: record_environment(run, start, fabric.device, world=ranks.world))
        stack.enter_context(stop.deferred(together=ranks.world > 1))
        skips = Skips(
            totals=totals,
            allowed=settings.bad_steps,
            log=run.log,
            name=dataset.name if callable(getattr(dataset, "name", None)) else None,
            on_message=say,
        )
        log = stack.enter_context(
            RunLog(
                run if ranks.first else None,
                skips,
                start=start,
                device=fabric.device,
                tensorboard=settings.tensorboard,
            )
        )
        fitting = Fitting(
            update,
            task,
            state,
            device=fabric.device,
            ranks=ranks,
            resumed=goes_on,
            on_message=say,
            on_shortage=log.shortage,
        )
        if settings.fit == "always" or (settings.fit == "auto" and fabric.device.type == "cuda"):
            with stop.allowed():
                fitting.try_shapes(start)
        with stop.allowed():
            make_ready(update, task, state, device=fabric.device, ranks=ranks, start=start)
        journal = stack.enter_context(_journal(state, settings, start, on_message, ranks))
        batches = _batches(plan, dataset, settings, start, journal, ranks, pin_memory=fabric.device.type == "cuda")
        stack.callback(batches.close)

        def tell_of_waiting(step: Step, message: str) -> None:
            log.slow_data(step, message)
            say(message)

        dog = stack.enter_context(
            Watchdog(run.path, plan, minutes=settings.watchdog, rank=ranks.rank, world=ranks.world)
        )
        waiting = Waiting(totals, plan, workers=settings.workers, on_slow=tell_of_waiting)
        clock = Clock(totals)
        recompute = (
            None if precise_bn is None else _precise(update, state, dataset, precise_bn, settings, journal, ranks)
        )
        if precise_bn is not None and len(dataset) < precise_bn and start < len(plan):
            say(f"precise_bn is {precise_bn:,} clips, and there are {len(dataset):,} to take them from")

        kept = start

        def keep(done: int) -> None:
            nonlocal kept
            dog.sign(done, SAVING)
            journal.sync()
            if ranks.first:
                state.save(done)
            kept = done

        def evaluate(done: int) -> bool:
            """What is due at the edge of a step before it is saved; False where a wish to end has cut it short."""
            totals.unevaluated = True
            dog.sign(done, EVALUATING)
            try:
                with stop.allowed(), dog.fed_by(model, best):
                    if recompute is not None:
                        recompute()
                    found = None if validate is None else validate(best, fabric.device)
            except Stopped:
                return False
            totals.unevaluated = False
            if found is not None:
                totals.curve.append(_point(plan, done, totals, found))
                log.validation(totals.curve[-1])
                on_point(totals.curve[-1])
            return True

        model.train()
        if totals.unevaluated:
            with clock.paused():
                if not evaluate(start):
                    stop.leave()
                keep(start)
        for step in plan.iterate(start):
            dog.sign(step.index, DATA)
            try:
                with stop.allowed():
                    batch, waited = _timed(batches)
            except Stopped:
                if kept != step.index:
                    log.flush()
                    keep(step.index)
                say(_stopped(step.index, plan))
                raise
            dog.sign(step.index, COMPUTING)
            if ranks.world > 1 and step.index == start:
                update.rehearse(step, batch)
            dog.sign(step.index, OTHERS)
            indices, ending = _counted(step, batch, journal, ranks, stop)
            dog.sign(step.index, COMPUTING)
            learned = fitting(step, batch)
            took = clock.lap()
            totals.data_seconds += waited
            waiting.count(step, batches.spent, data_seconds=waited, seconds=took)
            log.step(
                step,
                learned,
                indices=indices,
                faults=batch.faults,
                data_seconds=waited,
                seconds=took,
                watched=watch(model),
            )
            on_step(StepReport(step=step, work=_work(plan, step), data_seconds=waited, seconds=took))
            done = step.index + 1
            last = done == len(plan)
            evaluating = last or (validate is not None and _validation_is_due(plan, done, settings.validate_every))
            saving = last or done % settings.save_every == 0
            if evaluating or saving or ending:
                log.flush()  # waits for the device: the time until here is training
                with clock.paused():
                    if evaluating and ending:
                        totals.unevaluated = True
                    elif evaluating:
                        ending = not evaluate(done)
                    if saving or ending:
                        keep(done)
            if ending:
                say(_stopped(done, plan))
                stop.leave()
    return Fitted(
        model=best,
        steps=len(plan),
        samples=plan.samples,
        seconds=totals.seconds,
        cpu_seconds=totals.cpu_seconds,
        data_seconds=totals.data_seconds,
        replaced=totals.replaced,
        skipped=totals.skipped,
        curve=totals.curve,
        waiting=totals.waiting,
    )


def set_up(
    fabric: Fabric,
    *,
    plan: Plan,
    model: nn.Module,
    task: Task,
    optimizer: OptimizerSpec,
    run: RunFolder,
    settings: Settings,
    ranks: Ranks = ALONE,
    ema: EmaSpec | None = None,
    role_of: Callable[[str], str | None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> tuple[TrainState, Update]:
    """What is trained, as drawn, and what trains it; see `fit`."""
    convert_batchnorm(model, plan[0].bn_batch)
    model = _laid_out(model, fabric.device)
    # A fused SGD whose first step is skipped, as fp16's mostly is, leaves its momentum undefined.
    fused = fabric.device.type == "cuda" and settings.precision != "fp16"
    built = optimizer.build(model, role_of, fused=fused)
    state = TrainState(run=run, plan=plan, seed=settings.seed, model=model, optimizer=built)
    speed = Speed(compile=settings.compile, graphs=settings.graphs, compress=settings.compress)
    update = Update(fabric, task, state, ranks, speed=speed, on_message=on_message)
    state.ema = None if ema is None else Ema(model, ema)
    return state, update


def _laid_out(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with the weights of its convolutions as its clips lie in memory: channels last.

    2-D ones on a CPU only, where a step of super-resolution takes 0.6 of the time so.
    """
    if any(parameter.ndim == 5 for parameter in model.parameters()):
        return model.to(memory_format=torch.channels_last_3d)
    return model.to(memory_format=torch.channels_last) if device.type == "cpu" else model


def _precise(
    update: Update, state: TrainState, dataset: Any, clips: int, settings: Settings, journal: Journal, ranks: Ranks
) -> Callable[[], None]:
    """What recomputes BatchNorm's running statistics: each time from the same clips, the first of the stream."""
    plan = precise_plan(state.plan, min(clips, len(dataset)))

    def predict(loaded: tuple[Step, Batch]) -> None:
        step, batch = loaded
        journal.mention(batch)
        update.predict(step, batch)

    def recompute() -> None:
        set_bn_batch(state.model, plan[0].bn_batch)  # until the next step sets its own
        batches = iter(
            loader(
                dataset,
                plan,
                seed=settings.seed,
                workers=settings.workers,
                timeout=settings.timeout,
                rank=ranks.rank,
                world=ranks.world,
            )
        )
        try:
            recompute_statistics(state.model, zip(plan, batches, strict=True), predict)
        finally:
            batches.close()

    return recompute


def _journal(
    state: TrainState, settings: Settings, start: int, on_message: Callable[[str], None], ranks: Ranks
) -> Journal:
    own = state.run.bad_samples_of(ranks.rank)
    return Journal(
        own,
        state.totals,
        others=[file for file in state.run.all_bad_samples if file != own],
        first=state.plan.samples_before(start),
        clips=state.plan.baseline.clips,
        limit=settings.bad_limit,
        on_message=on_message,
    )


def _counted(step: Step, batch: Batch, journal: Journal, ranks: Ranks, stop: Stop) -> tuple[Tensor, bool]:
    """Count a batch on all ranks: the dataset indices of the whole of it, in order, and whether any wishes to end."""
    replaced = journal.note(batch)
    if ranks.world == 1:
        journal.count(len(batch.indices), replaced)
        return batch.indices, False
    own = batch.indices.tolist()
    longest = -(-step.batch // ranks.world) + step.bn_batch  # a slice is at most so much longer than the mean
    rows = ranks.table([replaced, stop.wanted, len(own), *own, *[0] * (longest - len(own))])
    journal.count(step.batch, sum(row[0] for row in rows))
    indices = torch.tensor([index for row in rows for index in row[3 : 3 + row[2]]])
    return indices, any(row[1] for row in rows)


def _refuse_unequal(start: int, ranks: Ranks, run: RunFolder) -> None:
    """Refuse ranks that do not see the same run."""
    starts = [row[0] for row in ranks.table([start])]
    if len(set(starts)) > 1:
        raise CheckpointError(
            f"ranks go on at different steps ({', '.join(map(str, starts))}): the run's folder {run.path} must be on a "
            "disk that all machines share"
        )


def _batches(
    plan: Plan, dataset: Any, settings: Settings, start: int, journal: Journal, ranks: Ranks, *, pin_memory: bool
) -> Batches:
    """This rank's batches from a step on. They stay with the host, which looks at their samples."""
    return iter(
        loader(
            dataset,
            plan,
            seed=settings.seed,
            start=start,
            workers=settings.workers,
            timeout=settings.timeout,
            prefetch=settings.prefetch,
            rank=ranks.rank,
            world=ranks.world,
            replaced=journal.replacements,
            pin_memory=pin_memory,
        )
    )


def _timed(batches: Batches) -> tuple[Batch, float]:
    """The next batch, and how long it was waited for in seconds."""
    began = time.perf_counter()
    batch = as_batch(next(batches))
    return batch, time.perf_counter() - began


def _validation_is_due(plan: Plan, done: int, every: float) -> bool:
    """Whether the step before `done` passed a multiple of `every` epochs; not shortly before the end, where one is due.

    Shortly is less than half of `every`.
    """
    before, after = plan.epochs_before(done - 1), plan.epochs_before(done)
    return math.floor(after / every) > math.floor(before / every) and plan.epochs - after >= every / 2


def _say_nothing(_: str) -> None:
    pass


def _stopped(done: int, plan: Plan) -> str:
    return f"stopped after step {done:,} of {len(plan):,}, which is saved"


def _nothing_evaluated(**_: Any) -> Evaluation:
    raise TypeError("fit(evaluation=...) is needed to resume a run that has been evaluated")


def _point(plan: Plan, done: int, totals: Totals, evaluation: Evaluation) -> Point:
    return Point(step=done, samples=plan.samples_before(done), seconds=totals.seconds, evaluation=evaluation)


def _work(plan: Plan, step: Step) -> float:
    return step.batch * step.shape.voxels / plan.baseline_shape.voxels
