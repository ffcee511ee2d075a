"""Trains a model under a plan; training can resume at any step.

Shapes, LR, samples, crops and dropout are functions of the step, so a checkpoint holds only what was *learned*. `fit`
sets everything up, `vcycle.train.loop` runs the loop, and `vcycle.train.step` computes each step.
"""

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from torch import nn

from vcycle.data import Balance
from vcycle.errors import CheckpointError
from vcycle.plan import BatchShape, Plan
from vcycle.train import stopping
from vcycle.train.accelerator import make_accelerator, slowness
from vcycle.train.callbacks import Callbacks
from vcycle.train.config import TrainConfig
from vcycle.train.environment import record_environment
from vcycle.train.fetching import BatchFetcher, open_journal
from vcycle.train.gradients import Skips
from vcycle.train.lock import training_lock
from vcycle.train.log import RunLog, Watched
from vcycle.train.loggers import LoggedRun, open_loggers
from vcycle.train.loop import Loop
from vcycle.train.micro_batching import MicroBatchSearch
from vcycle.train.objective import Objective
from vcycle.train.outcome import EvalResult, TrainResult
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.ready import make_ready
from vcycle.train.run import RunFolder
from vcycle.train.setup import set_up
from vcycle.train.step import refuse_shared_mixing
from vcycle.train.threads import ThreadsWatch, use_threads
from vcycle.train.validation import Evaluator, Validation, precise_batchnorm
from vcycle.train.watchdog import DATA, Watchdog, preparing, trying

__all__ = ["fit"]


def fit(
    config: TrainConfig,
    *,
    plan: Plan,
    model: nn.Module,
    dataset: Any,
    objective: Objective,
    run: RunFolder,
    validate: Evaluator | None = None,
    evaluation: Callable[..., EvalResult] | None = None,
    role_of: Callable[[str], str | None] = lambda _: None,
    monitor: Callable[[nn.Module], Watched | None] = lambda _: None,
    callbacks: Callbacks | None = None,
    balance: Balance | None = None,
    resume: bool = False,
    ranks: Ranks = SINGLE_PROCESS,
) -> TrainResult:
    """Train a model under a plan.

    Args:
        config: All training options.
        plan: The plan: shape, batch and LR of every step.
        model: The model; its BatchNorms are converted in place.
        dataset: Returns a `vcycle.data.Sample` (or `PairedSample`) for a `SampleRequest`, as `VideoDataset` does.
        objective: The loss.
        run: The run folder.
        validate: Evaluates the model, every `run.validate_every` epochs of samples and at the end.
        evaluation: Rebuilds the result of `validate` from its fields, to resume.
        role_of: The plan's role of a parameter, by its name.
        monitor: Returns a number to check after each step; training stops if it exceeds its limit.
        callbacks: Functions to call during training.
        balance: Groups of items, such as classes, to draw equally often.
        resume: Resume from the newest checkpoint in the folder, or start if there is none.
        ranks: The ranks that train together. All call this with the same arguments; the first writes the run folder.

    Raises:
        CheckpointError: if the checkpoint belongs to another plan or model, or cannot be written.
        DataError: if more samples are unreadable than `run.bad_limit` allows, or labels do not fit the objective.
        VcycleError: if the loss is not finite too many times in a row, or the folder already holds a run.
        PeerExited: if a peer process has exited.
        Stopped: if a signal has requested a stop, within `vcycle.train.stopping.signals`.
    """
    callbacks = callbacks or Callbacks()
    on_any_rank = callbacks.on_message
    if not ranks.first:
        callbacks = replace(callbacks, on_message=Callbacks().on_message)
    say, options = callbacks.on_message, config.run
    accelerator = make_accelerator(options, model, ranks)
    device = accelerator.device
    refuse_shared_mixing(objective, plan, ranks)
    resuming = ranks.from_first(lambda: run.prepare(plan, None, resume=resume))
    with ExitStack() as stack:
        stack.enter_context(ranks.together())
        ranks.from_first(lambda: stack.enter_context(training_lock(run.path, say)))
        if (slow := slowness(options.precision, device)) is not None:
            say(slow)
        threads = use_threads(
            options.threads,
            workers=config.loading.workers,
            ranks=ranks,
            resumed=run if resuming else None,
            on_message=say,
        )
        state, train_step = set_up(
            config,
            accelerator,
            plan=plan,
            model=model,
            objective=objective,
            run=run,
            ranks=ranks,
            role_of=role_of,
            on_message=say,
        )
        stack.callback(state.finish_saving)
        start = state.restore(say, evaluation or _nothing_evaluated, ranks) if resuming else 0
        _refuse_unequal(start, ranks, run)
        if not resuming:
            if resume:
                say(f"nothing to resume in {run.path}: starting from the beginning")
            # Saving now reports a full disk or a read-only folder before the first step.
            state.save(0, write=ranks.first)
        stop = stopping.current()
        ranks.from_first(lambda: record_environment(run, start, device, world=ranks.world))
        stack.enter_context(stop.deferred(together=ranks.world > 1))
        log = stack.enter_context(_open_log(config, state, dataset, ranks, start, device, say))
        micro_batches = MicroBatchSearch(
            train_step,
            objective,
            state,
            device=device,
            ranks=ranks,
            resumed=resuming,
            on_message=say,
            on_shortage=log.shortage,
        )
        watchdog = stack.enter_context(
            Watchdog(run.path, plan, minutes=options.watchdog, rank=ranks.rank, world=ranks.world)
        )

        def sign(doing: Callable[[BatchShape], str]) -> Callable[[BatchShape], None]:
            return lambda cell: watchdog.sign(start, doing(cell))

        on_gpu = device.type == "cuda"
        with stop.allowed():
            if options.fit == "always" or (options.fit == "auto" and on_gpu):
                micro_batches.try_shapes(start, sign(trying))
            make_ready(train_step, objective, state, device=device, ranks=ranks, start=start, on_shape=sign(preparing))
        watchdog.sign(start, DATA)
        journal = stack.enter_context(
            open_journal(
                state,
                start=start,
                repeats=config.repeats,
                max_draws_per_epoch=1 if balance is None else balance.max_repeats,
                limit=options.bad_limit,
                on_message=on_any_rank,
                ranks=ranks,
            )
        )
        fetcher = BatchFetcher(
            dataset,
            plan,
            config,
            start=start,
            journal=journal,
            ranks=ranks,
            pin_memory=on_gpu,
            balance=balance,
        )
        stack.callback(fetcher.close)
        if config.precise_bn is not None and len(dataset) < config.precise_bn and start < len(plan):
            say(f"precise_bn is {config.precise_bn:,} clips, but the training set has only {len(dataset):,}")
        validation = Validation(
            config=config,
            state=state,
            evaluator=validate,
            recompute=precise_batchnorm(config, train_step, state, dataset, journal, ranks, stop),
            log=log,
            watchdog=watchdog,
            stop=stop,
            ranks=ranks,
            device=device,
            callbacks=callbacks,
        )
        return Loop(
            config=config,
            state=state,
            train_step=train_step,
            micro_batches=micro_batches,
            fetcher=fetcher,
            validation=validation,
            log=log,
            watchdog=watchdog,
            stop=stop,
            ranks=ranks,
            monitor=monitor,
            threads=ThreadsWatch(
                1 if on_gpu else threads,
                resume=f"vcycle train {shlex.quote(str(run.path))} --resume",
                on_message=say,
            ),
            callbacks=callbacks,
        ).run(start)


def _open_log(
    config: TrainConfig,
    state: Any,
    dataset: Any,
    ranks: Ranks,
    start: int,
    device: Any,
    say: Callable[[str], None],
) -> RunLog:
    """Open the log of a run and, on the first rank, its loggers."""
    run = state.run
    skips = Skips(
        totals=state.totals,
        allowed=config.run.bad_steps,
        log=run.log,
        name=dataset.name if callable(getattr(dataset, "name", None)) else None,
        on_message=say,
    )

    def loggers() -> Any:
        recipe = run.recipe.read_text(encoding="utf-8") if run.recipe.is_file() else None
        return open_loggers(config.run.loggers, LoggedRun(folder=run.path, start=start, recipe=recipe), say)

    log = RunLog(run if ranks.first else None, state.plan, skips, start=start, device=device)
    ranks.from_first(lambda: log.add(loggers()))
    return log


def _refuse_unequal(start: int, ranks: Ranks, run: RunFolder) -> None:
    """Reject ranks that do not see the same run folder."""
    starts = [row[0] for row in ranks.all_gather_ints([start])]
    if len(set(starts)) > 1:
        raise CheckpointError(
            f"ranks resume at different steps ({', '.join(map(str, starts))}): put the run folder {run.path} on a disk "
            "that all machines share"
        )


def _nothing_evaluated(**_: Any) -> EvalResult:
    raise TypeError("fit(evaluation=...) is needed to resume a run that has been evaluated")
