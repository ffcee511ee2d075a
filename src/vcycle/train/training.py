"""A training under way: what is done in a step, and at the edge between two."""

import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import torch
from torch import nn

from vcycle.data import Batch
from vcycle.errors import CheckpointError, VcycleError
from vcycle.plan import Plan, Step
from vcycle.train.checkpoint import BEST
from vcycle.train.clock import Clock
from vcycle.train.feeding import Feed
from vcycle.train.fitting import Fitting
from vcycle.train.journal import Journal
from vcycle.train.log import RunLog, Watched
from vcycle.train.outcome import Evaluation, Fitted, Point, StepReport, Totals
from vcycle.train.ranks import Ranks
from vcycle.train.settings import Settings
from vcycle.train.state import TrainState
from vcycle.train.stopping import Stop, Stopped
from vcycle.train.threads import ThreadsWatch
from vcycle.train.update import Update
from vcycle.train.waiting import Waiting
from vcycle.train.watchdog import COMPUTING, DATA, EVALUATING, OTHERS, SAVING, Watchdog

__all__ = ["Training"]


@dataclass(kw_only=True)
class Training:
    """A training under way: what is done in a step, and at the edge between two."""

    plan: Plan
    settings: Settings
    state: TrainState
    update: Update
    fitting: Fitting
    feed: Feed
    journal: Journal
    log: RunLog
    dog: Watchdog
    stop: Stop
    ranks: Ranks
    device: torch.device
    recompute: Callable[[], None] | None
    """Recomputes BatchNorm's running statistics, before each evaluation."""
    validate: Callable[[nn.Module, torch.device], Evaluation] | None
    watch: Callable[[nn.Module], Watched | None]
    threads: ThreadsWatch
    say: Callable[[str], None]
    on_step: Callable[[StepReport], None]
    on_point: Callable[[Point], None]

    _kept: int = field(init=False)
    """Steps done when it was last saved."""
    _clock: Clock = field(init=False)
    _waiting: Waiting = field(init=False)

    def run(self, start: int) -> Fitted:
        """Take every step from `start` on, and do what is due at its edges.

        Raises:
            Stopped: if a signal has asked for an end; what was learned is saved.
        """
        self._kept = start
        self._clock = Clock(self.state.totals)
        self._waiting = Waiting(
            self.state.totals, self.plan, workers=self.settings.workers, on_slow=self._tell_of_waiting
        )
        self.state.model.train()
        self._catch_up(start)
        try:
            for step in self.plan.iterate(start):
                batch, waited = self._take(step)
                if self.ranks.world > 1 and step.index == start:
                    self.update.rehearse(step, batch)
                ending = self._learn(step, batch, waited)
                self._do_what_is_due(step.index + 1, ending)
        except VcycleError:
            with suppress(CheckpointError):
                self.state.save_noted()  # a training that diverges has nothing better to go on from
            raise
        self._tell_of_best()
        return self._fitted()

    def _take(self, step: Step) -> tuple[Batch, float]:
        """A step's batch, and how long it was waited for in seconds; a wish to end cuts the wait short."""
        self.dog.sign(step.index, DATA)
        try:
            with self.stop.allowed():
                batch, waited = self.feed.take()
        except Stopped:
            # One of several ranks is only stopped here by whoever asks twice, and the others know nothing of it.
            if self.ranks.world == 1:
                if self._kept != step.index:
                    self.log.flush()
                    self._keep(step.index)
                self.say(_stopped(step.index, self.plan))
            raise
        self.dog.sign(step.index, COMPUTING)
        return batch, waited

    def _learn(self, step: Step, batch: Batch, waited: float) -> bool:
        """Take a step, count and log it: whether another rank wishes to end."""
        self.dog.sign(step.index, OTHERS)
        indices, ending = self.feed.count(step, batch, wish=self.stop.wanted)
        self.dog.sign(step.index, COMPUTING)
        learned = self.fitting(step, batch)
        before = self.state.totals.cpu_seconds
        took = self._clock.lap()
        with self._clock.paused():
            self.threads.count(took - waited, self.state.totals.cpu_seconds - before)
        self.state.totals.data_seconds += waited
        self._waiting.count(step, self.feed.spent, data_seconds=waited, seconds=took)
        self.log.step(
            step,
            learned,
            indices=indices,
            faults=batch.faults,
            data_seconds=waited,
            seconds=took,
            watched=self.watch(self.state.model),
        )
        self.on_step(StepReport(step=step, work=_work(self.plan, step), data_seconds=waited, seconds=took))
        return ending

    def _do_what_is_due(self, done: int, ending: bool) -> None:
        """Evaluate and save after so many steps, where that is due, and end if that is wished for.

        Raises:
            Stopped: if so.
        """
        last = done == len(self.plan)
        evaluating = last or (
            self.validate is not None and _validation_is_due(self.plan, done, self.settings.validate_every)
        )
        saving = last or done % self.settings.save_every == 0
        if evaluating or saving or ending:
            self.log.flush()  # waits for the device: the time until here is training
            with self._clock.paused():
                if evaluating and ending:
                    self.state.totals.unevaluated = True
                elif evaluating:
                    ending = not self._evaluate(done)
                if saving or ending:
                    self._keep(done)
        if ending:
            self.say(_stopped(done, self.plan))
            self.stop.leave()

    def _catch_up(self, start: int) -> None:
        """Do the evaluation that a wish to end has cut short before.

        Raises:
            Stopped: if another does so again.
        """
        if self.state.totals.unevaluated:
            with self._clock.paused():
                if not self._evaluate(start):
                    self.say(_stopped(start, self.plan))
                    self.stop.leave()
                self._keep(start)

    def _evaluate(self, done: int) -> bool:
        """What is due at the edge of a step before it is saved; False where a wish to end has cut it short."""
        totals = self.state.totals
        totals.unevaluated = True
        self.dog.sign(done, EVALUATING)
        try:
            with self.stop.allowed():
                if self.recompute is not None:
                    with self.dog.fed_by(self.state.model):
                        self.recompute()
                found = None if self.validate is None else self._validated(self.validate)
        except Stopped as stopped:
            if stopped.at_once and self.ranks.world > 1:
                raise  # the others know nothing of it, and do not save together with this rank
            return False
        totals.unevaluated = False
        if found is not None:
            totals.curve.append(_point(self.plan, done, totals, found))
            if totals.best is totals.curve[-1]:
                self.state.note_best(done, write=self.ranks.first)
            self.log.validation(totals.curve[-1])
            self.on_point(totals.curve[-1])
        return True

    def _validated(self, validate: Callable[[nn.Module, torch.device], Evaluation]) -> Evaluation:
        """What a validation finds; on several ranks, a wish to end cuts it short on all of them."""
        best = self.state.best()
        with ExitStack() as stack:
            stack.enter_context(self.dog.fed_by(best))
            if self.ranks.world > 1:
                look = stack.enter_context(self.ranks.all_or_none(lambda: self.stop.wanted, self.stop.leave))
                stack.callback(best.register_forward_pre_hook(lambda *_: look()).remove)
            return validate(best, self.device)

    def _keep(self, done: int) -> None:
        """Save what was learned in so many steps."""
        self.dog.sign(done, SAVING)
        self.journal.sync()
        self.state.save(done, write=self.ranks.first)
        self._kept = done

    def _tell_of_waiting(self, step: Step, message: str) -> None:
        self.log.slow_data(step, message)
        self.say(message)

    def _tell_of_best(self) -> None:
        """Say where the training was at its best, if its end is not as good."""
        curve, best = self.state.totals.curve, self.state.totals.best
        if best is not None and not curve[-1].evaluation.value >= best.evaluation.value:
            kept = self.state.best_step == best.step
            self.say(
                f"the best validation was after step {best.step:,}, {best.evaluation.headline}, and the last is "
                f"{curve[-1].evaluation.headline}"
                f"{f': {self.state.run.checkpoints / BEST} has the weights of then' if kept else ''}"
            )

    def _fitted(self) -> Fitted:
        totals = self.state.totals
        return Fitted(
            model=self.state.best(),
            steps=len(self.plan),
            samples=self.plan.samples,
            seconds=totals.seconds,
            cpu_seconds=totals.cpu_seconds,
            data_seconds=totals.data_seconds,
            replaced=totals.replaced,
            skipped=totals.skipped,
            curve=totals.curve,
            waiting=totals.waiting,
        )


def _validation_is_due(plan: Plan, done: int, every: float) -> bool:
    """Whether the step before `done` passed a multiple of `every` epochs; not shortly before the end, where one is due.

    Shortly is less than half of `every`.
    """
    before, after = plan.epochs_before(done - 1), plan.epochs_before(done)
    return math.floor(after / every) > math.floor(before / every) and plan.epochs - after >= every / 2


def _stopped(done: int, plan: Plan) -> str:
    return f"stopped after step {done:,} of {len(plan):,}, which is saved"


def _point(plan: Plan, done: int, totals: Totals, evaluation: Evaluation) -> Point:
    return Point(step=done, samples=plan.samples_before(done), seconds=totals.seconds, evaluation=evaluation)


def _work(plan: Plan, step: Step) -> float:
    return step.batch * step.shape.voxels / plan.baseline_shape.voxels
