"""The training loop: every step of the plan from a given one on, and what is due between two."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from torch import nn

from vcycle.data import Batch
from vcycle.errors import CheckpointError, VcycleError
from vcycle.plan import Plan, Step
from vcycle.train.callbacks import Callbacks
from vcycle.train.clock import Clock
from vcycle.train.config import TrainConfig
from vcycle.train.fetching import BatchFetcher
from vcycle.train.log import RunLog, Watched
from vcycle.train.micro_batching import MicroBatchSearch
from vcycle.train.outcome import Fitted, StepReport
from vcycle.train.ranks import Ranks
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep
from vcycle.train.stopping import Stop, Stopped
from vcycle.train.threads import ThreadsWatch
from vcycle.train.validation import Validation
from vcycle.train.waiting import Waiting
from vcycle.train.watchdog import COMPUTING, DATA, OTHERS, SAVING, Watchdog

__all__ = ["Loop"]


@dataclass(kw_only=True)
class Loop:
    """The steps of a training, and what is due between two of them."""

    config: TrainConfig
    state: TrainState
    train_step: TrainStep
    micro_batches: MicroBatchSearch
    fetcher: BatchFetcher
    validation: Validation
    log: RunLog
    watchdog: Watchdog
    stop: Stop
    ranks: Ranks
    monitor: Callable[[nn.Module], Watched | None]
    threads: ThreadsWatch
    callbacks: Callbacks

    _saved: int = field(init=False)
    """Steps done when it was last saved."""
    _clock: Clock = field(init=False)
    _waiting: Waiting = field(init=False)

    @property
    def plan(self) -> Plan:
        """What is trained by."""
        return self.state.plan

    def run(self, start: int) -> Fitted:
        """Take every step from `start` on, and do what is due at its edges.

        Raises:
            Stopped: if a signal has asked for an end; the steps done are saved.
        """
        self._saved = start
        self._clock = Clock(self.state.totals)
        self._waiting = Waiting(
            self.state.totals, self.plan, workers=self.config.loading.workers, on_slow=self._report_waiting
        )
        self.state.model.train()
        self._catch_up(start)
        try:
            for step in self.plan.iterate(start):
                batch, waited = self._take(step)
                if self.ranks.world > 1 and step.index == start:
                    self.train_step.rehearse(step, batch)
                ending = self._learn(step, batch, waited)
                self._do_what_is_due(step.index + 1, ending)
        except VcycleError:
            with suppress(CheckpointError):
                self.state.save_noted()  # a training that diverges has nothing better to go on from
            raise
        self.validation.report_best()
        return self._result()

    def _take(self, step: Step) -> tuple[Batch, float]:
        """A step's batch, and how long it was waited for in seconds; a request to stop cuts the wait short."""
        self.watchdog.sign(step.index, DATA)
        try:
            with self.stop.allowed():
                batch, waited = self.fetcher.take()
        except Stopped:
            # One of several ranks is only stopped here by whoever asks twice, and the others know nothing of it.
            if self.ranks.world == 1:
                if self._saved != step.index:
                    self.log.flush()
                    self._save(step.index)
                self.callbacks.on_message(_stopped(step.index, self.plan))
            raise
        self.watchdog.sign(step.index, COMPUTING)
        return batch, waited

    def _learn(self, step: Step, batch: Batch, waited: float) -> bool:
        """Take a step, count and log it: whether any rank is asked to stop."""
        self.watchdog.sign(step.index, OTHERS)
        indices, ending = self.fetcher.count(step, batch, stopping=self.stop.wanted)
        self.watchdog.sign(step.index, COMPUTING)
        result = self.micro_batches(step, batch)
        before = self.state.totals.cpu_seconds
        took = self._clock.lap()
        with self._clock.paused():
            self.threads.count(took - waited, self.state.totals.cpu_seconds - before)
        self.state.totals.data_seconds += waited
        self._waiting.count(step, self.fetcher.spent, data_seconds=waited, seconds=took)
        self.log.step(
            step,
            result,
            indices=indices,
            faults=batch.faults,
            data_seconds=waited,
            seconds=took,
            watched=self.monitor(self.state.model),
        )
        self.callbacks.on_step(
            StepReport(
                step=step,
                work=_work(self.plan, step),
                data_seconds=waited,
                seconds=took,
                loss=self.log.newest_loss,
            )
        )
        return ending

    def _do_what_is_due(self, done: int, ending: bool) -> None:
        """Evaluate and save after so many steps, where that is due, and stop if that is asked for.

        Raises:
            Stopped: if so.
        """
        evaluating = self.validation.is_due(done)
        saving = done == len(self.plan) or done % self.config.run.save_every == 0
        if evaluating or saving or ending:
            self.log.flush()  # waits for the device: the time until here is training
            with self._clock.paused():
                if evaluating and ending:
                    self.state.totals.unevaluated = True
                elif evaluating:
                    ending = not self.validation.run(done)
                if saving or ending:
                    self._save(done)
        if ending:
            self.callbacks.on_message(_stopped(done, self.plan))
            self.stop.leave()

    def _catch_up(self, start: int) -> None:
        """Do the evaluation that a request to stop has cut short before.

        Raises:
            Stopped: if another does so again.
        """
        if self.state.totals.unevaluated:
            with self._clock.paused():
                if not self.validation.run(start):
                    self.callbacks.on_message(_stopped(start, self.plan))
                    self.stop.leave()
                self._save(start)

    def _save(self, done: int) -> None:
        """Save a checkpoint of so many steps."""
        self.watchdog.sign(done, SAVING)
        self.fetcher.sync()
        self.state.save(done, write=self.ranks.first)
        self._saved = done

    def _report_waiting(self, step: Step, message: str) -> None:
        self.log.slow_data(step, message)
        self.callbacks.on_message(message)

    def _result(self) -> Fitted:
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


def _stopped(done: int, plan: Plan) -> str:
    return f"stopped after step {done:,} of {len(plan):,}, which is saved"


def _work(plan: Plan, step: Step) -> float:
    return step.batch * step.shape.voxels / plan.baseline_shape.voxels
