"""The training loop: one pass over a plan, resumable at any step.

Nothing that varies is kept as state: shapes, LR, samples, crops and dropout are functions of the step. What a
checkpoint holds is what was *learned*.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from vcycle.data import Batch, loader
from vcycle.errors import CheckpointError
from vcycle.nn import set_bn_batch
from vcycle.plan import Plan, Step
from vcycle.train import stopping
from vcycle.train.ema import EmaSpec
from vcycle.train.environment import record_environment
from vcycle.train.feeding import Feed, journal_of
from vcycle.train.fitting import Fitting
from vcycle.train.journal import Journal
from vcycle.train.lock import training_lock
from vcycle.train.log import RunLog, Watched
from vcycle.train.nonfinite import Skips
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.outcome import Evaluation, Fitted, Point, StepReport
from vcycle.train.precise_bn import precise_plan, recompute_statistics
from vcycle.train.precision import slowness
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.ready import make_ready
from vcycle.train.run import RunFolder
from vcycle.train.settings import Settings
from vcycle.train.setup import make_fabric, set_up
from vcycle.train.state import TrainState
from vcycle.train.stopping import Stop
from vcycle.train.training import Training
from vcycle.train.update import Task, Update, refuse_shared_mixing
from vcycle.train.watchdog import DATA, Watchdog, preparing, trying

__all__ = ["Settings", "Task", "fit", "make_fabric", "set_up"]


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
        dataset: Gives a `vcycle.data.Sample` for a `SampleRequest`, as `VideoDataset` does.
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
        Abandoned: if another rank has ended.
        Stopped: if a signal has asked for an end, within `vcycle.train.stopping.signals`.
    """
    fabric = make_fabric(settings, model, ranks)
    refuse_shared_mixing(task, plan, ranks)
    say: Callable[[str], None] = on_message if ranks.first else _say_nothing
    goes_on = ranks.from_first(lambda: run.prepare(plan, recipe, resume=resume, classes=classes))
    with ExitStack() as stack:
        stack.enter_context(ranks.together())
        ranks.from_first(lambda: stack.enter_context(training_lock(run.path, say)))
        if (slow := slowness(settings.precision, fabric.device)) is not None:
            say(slow)
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
        start = state.restore(say, evaluation or _nothing_evaluated) if goes_on else 0
        _refuse_unequal(start, ranks, run)
        if not goes_on:
            if resume:
                say(f"nothing to resume in {run.path}: starting from the beginning")
            # A full disk or a folder that cannot be written to shows before anything is trained.
            state.save(0, write=ranks.first)
        stop = stopping.current()
        ranks.from_first(lambda: record_environment(run, start, fabric.device, world=ranks.world))
        stack.enter_context(stop.deferred(together=ranks.world > 1))
        skips = Skips(
            totals=state.totals,
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
        dog = stack.enter_context(
            Watchdog(run.path, plan, minutes=settings.watchdog, rank=ranks.rank, world=ranks.world)
        )
        on_gpu = fabric.device.type == "cuda"
        with stop.allowed():
            if settings.fit == "always" or (settings.fit == "auto" and on_gpu):
                fitting.try_shapes(start, lambda cell: dog.sign(start, trying(cell)))
            make_ready(
                update,
                task,
                state,
                device=fabric.device,
                ranks=ranks,
                start=start,
                on_shape=lambda cell: dog.sign(start, preparing(cell)),
            )
        dog.sign(start, DATA)
        journal = stack.enter_context(
            journal_of(state, start=start, limit=settings.bad_limit, on_message=on_message, ranks=ranks)
        )
        feed = Feed(dataset, plan, settings, start=start, journal=journal, ranks=ranks, pin_memory=on_gpu)
        stack.callback(feed.close)
        recompute = None
        if precise_bn is not None:
            recompute = _precise(update, state, dataset, precise_bn, settings, journal, ranks, stop)
            if len(dataset) < precise_bn and start < len(plan):
                say(f"precise_bn is {precise_bn:,} clips, and there are {len(dataset):,} to take them from")
        return Training(
            plan=plan,
            settings=settings,
            state=state,
            update=update,
            fitting=fitting,
            feed=feed,
            journal=journal,
            log=log,
            dog=dog,
            stop=stop,
            ranks=ranks,
            device=fabric.device,
            recompute=recompute,
            validate=validate,
            watch=watch,
            say=say,
            on_step=on_step,
            on_point=on_point,
        ).run(start)


def _precise(
    update: Update,
    state: TrainState,
    dataset: Any,
    clips: int,
    settings: Settings,
    journal: Journal,
    ranks: Ranks,
    stop: Stop,
) -> Callable[[], None]:
    """What recomputes BatchNorm's running statistics: each time from the same clips, the first of the stream."""
    plan = precise_plan(state.plan, min(clips, len(dataset)))

    def predict(loaded: tuple[Step, Batch]) -> None:
        if ranks.anywhere(stop.wanted):
            stop.leave()
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


def _refuse_unequal(start: int, ranks: Ranks, run: RunFolder) -> None:
    """Refuse ranks that do not see the same run."""
    starts = [row[0] for row in ranks.table([start])]
    if len(set(starts)) > 1:
        raise CheckpointError(
            f"ranks go on at different steps ({', '.join(map(str, starts))}): the run's folder {run.path} must be on a "
            "disk that all machines share"
        )


def _say_nothing(_: str) -> None:
    pass


def _nothing_evaluated(**_: Any) -> Evaluation:
    raise TypeError("fit(evaluation=...) is needed to resume a run that has been evaluated")
