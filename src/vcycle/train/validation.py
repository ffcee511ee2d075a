"""Validation during training: when it runs, at which shapes, and which validation was the best."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from vcycle.data import Batch, steps
from vcycle.nn import set_bn_batch
from vcycle.plan import Shape, Step
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import BEST
from vcycle.train.config import TrainConfig
from vcycle.train.journal import Journal
from vcycle.train.log import RunLog
from vcycle.train.outcome import EvalResult, ValidationResult
from vcycle.train.precise_bn import precise_plan, recompute_statistics
from vcycle.train.ranks import Ranks
from vcycle.train.shards import is_sharded
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep
from vcycle.train.stopping import Stop, Stopped
from vcycle.train.uneven_inputs import uneven_inputs
from vcycle.train.watchdog import EVALUATING, Watchdog

__all__ = ["Evaluator", "Validation", "precise_batchnorm"]


class Evaluator(Protocol):
    """Evaluates a model; called on every rank, and returns the same result on each.

    Ranks may run different numbers of forward passes, also of a sharded model, and exchange results by `Ranks`.
    """

    def __call__(self, model: nn.Module, device: torch.device, /, shape: Shape | None = None) -> EvalResult:
        """Evaluate a model at full resolution, or at a shape (frames, height, width)."""
        ...


@dataclass(kw_only=True)
class Validation:
    """Runs the validations of a training run."""

    config: TrainConfig
    state: TrainState
    evaluator: Evaluator | None
    recompute: Callable[[], None] | None
    """Recomputes the BatchNorm statistics of the evaluated model, before each validation."""
    log: RunLog
    watchdog: Watchdog
    stop: Stop
    ranks: Ranks
    device: torch.device
    callbacks: Callbacks

    def is_due(self, done: int) -> bool:
        """Whether a validation is due after so many steps.

        It is due when the last step passed a multiple of `validate_every` epochs, and at the end; but not within half
        of `validate_every` before the end.
        """
        plan, every = self.state.plan, self.config.run.validate_every
        if done == len(plan):
            return True
        before, after = plan.epochs_before(done - 1), plan.epochs_before(done)
        passed = math.floor(after / every) > math.floor(before / every)
        return self.evaluator is not None and passed and plan.epochs - after >= every / 2

    def run(self, done: int) -> bool:
        """Validate after `done` steps; return False if a stop request interrupted it."""
        totals = self.state.totals
        totals.unevaluated = True
        self.watchdog.sign(done, EVALUATING)
        try:
            with self.stop.allowed():
                if self.recompute is not None:
                    with self.watchdog.fed_by(self.state.evaluated):
                        self.recompute()
                found = None if self.evaluator is None else self._evaluated(self.evaluator, done)
        except Stopped as stopped:
            if stopped.at_once and self.ranks.world > 1:
                raise  # the other ranks do not know of it, and do not save together with this one
            return False
        totals.unevaluated = False
        if found is not None:
            totals.curve.append(found)
            if totals.best is found:
                self.state.note_best(done, write=self.ranks.first)
            self.log.validation(found)
            self.callbacks.on_validation(found)
        return True

    def _evaluated(self, evaluator: Evaluator, done: int) -> ValidationResult:
        """Run the evaluator; a stop request on any rank interrupts it on all."""
        best, shape = self.state.evaluated, self._stage_shape(done)
        with ExitStack() as stack:
            stack.enter_context(self.watchdog.fed_by(best))
            if is_sharded(best):
                wanted, leave = lambda: self.stop.wanted, self.stop.leave
                stack.enter_context(uneven_inputs(best, self.ranks, wanted=wanted, give_up=leave))
            elif self.ranks.world > 1:
                look = stack.enter_context(self.ranks.all_or_none(lambda: self.stop.wanted, self.stop.leave))
                stack.callback(best.register_forward_pre_hook(lambda *_: look()).remove)
            full = evaluator(best, self.device)
            stage = None if shape is None else evaluator(best, self.device, shape=shape)
        return ValidationResult(
            step=done,
            samples=self.state.plan.samples_before(done),
            seconds=self.state.totals.seconds,
            evaluation=full,
            stage=stage,
            stage_shape=None if shape is None else f"{shape.frames}×{shape.size}²",
        )

    def _stage_shape(self, done: int) -> Shape | None:
        """The shape of the stage just trained; None if it is the full shape or `validate_stage_shape` is off."""
        if not self.config.run.validate_stage_shape:
            return None
        plan = self.state.plan
        shape = plan.stages[plan[done - 1].stage].base.shape
        return None if shape == plan.baseline_shape.shape else shape

    def report_best(self) -> None:
        """Report the best validation, if the last one is worse."""
        curve, best = self.state.totals.curve, self.state.totals.best
        if best is not None and not curve[-1].evaluation.value >= best.evaluation.value:
            kept = self.state.best_step == best.step
            self.callbacks.on_message(
                f"the best validation was after step {best.step:,}, {best.evaluation.headline}, the last one is "
                f"{curve[-1].evaluation.headline}"
                f"{f': {self.state.run.checkpoints / BEST} has the best weights' if kept else ''}"
            )


def precise_batchnorm(
    config: TrainConfig,
    train_step: TrainStep,
    state: TrainState,
    dataset: Any,
    journal: Journal,
    ranks: Ranks,
    stop: Stop,
) -> Callable[[], None] | None:
    """A function that recomputes BatchNorm's running statistics from the first clips of the stream; None if it is off.

    They are those of the evaluated model: with an EMA, of the averaged weights, which a copy of the statistics of
    training would not fit (as `torch.optim.swa_utils.update_bn` does).

    Args:
        config: The number of clips, and how they are loaded.
        train_step: Computes the forward passes.
        state: The training state, with the model.
        dataset: The training set.
        journal: Reports clips that cannot be read.
        ranks: The ranks that compute together.
        stop: A stop request interrupts the computation.
    """
    if config.precise_bn is None:
        return None
    plan = precise_plan(state.plan, min(config.precise_bn, len(dataset)))

    def predict(loaded: tuple[Step, Batch]) -> None:
        if ranks.any_rank(stop.wanted):
            stop.leave()
        step, batch = loaded
        journal.mention(batch)
        train_step.predict(step, batch)

    def recompute() -> None:
        set_bn_batch(state.evaluated, plan[0].bn_batch)  # until the next step sets its own
        batches = steps(
            dataset,
            plan,
            seed=config.run.seed,
            rank=ranks.rank,
            world=ranks.world,
            **config.loading.loader_options,
        )
        try:
            recompute_statistics(state.evaluated, batches, predict)
        finally:
            batches.close()

    return recompute
