"""The training loop: runs the steps of the plan, and validates, saves and stops between steps."""

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
from vcycle.train.outcome import StepReport, TrainResult
from vcycle.train.ranks import Ranks
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep
from vcycle.train.stopping import Stop, Stopped
from vcycle.train.threads import ThreadsWatch
from vcycle.train.validation import Validation
from vcycle.train.waiting import Waiting
from vcycle.train.watchdog import COMPUTING, DATA, OTHERS, SAVING, Watchdog
from vcycle.utils.ranks import launched_here

__all__ = ["Loop"]


@dataclass(kw_only=True)
class Loop:
    """The training loop of a run."""

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
    """Steps done at the last checkpoint."""
    _clock: Clock = field(init=False)
    _waiting: Waiting = field(init=False)
    _advised: set[str] = field(init=False, default_factory=set)
    """Advice on waiting for data that was given."""

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self.state.plan

    def run(self, start: int) -> TrainResult:
        """Run every step from `start` on, with validations and checkpoints.

        Raises:
            Stopped: if a signal has requested a stop; the steps done are saved.
        """
        self._saved = start
        self._clock = Clock(self.state.totals)
        self._waiting = Waiting(
            self.state.totals,
            self.plan,
            workers=self.config.loading.workers,
            local_ranks=launched_here(1),
            on_slow=self._report_waiting,
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
                self.state.save_noted()  # the best weights so far are of use if training diverges
            raise
        self.validation.report_best()
        return self._result()

    def _take(self, step: Step) -> tuple[Batch, float]:
        """Fetch a step's batch, and the seconds spent waiting for it; a stop request interrupts the wait."""
        self.watchdog.sign(step.index, DATA)
        try:
            with self.stop.allowed():
                batch, waited = self.fetcher.take()
        except Stopped:
            # With several ranks, only a second signal stops one here, and the other ranks do not know of it.
            if self.ranks.world == 1:
                if self._saved != step.index:
                    self.log.flush()
                    self._save(step.index)
                self.callbacks.on_message(_stopped(step.index, self.plan))
            raise
        self.watchdog.sign(step.index, COMPUTING)
        return batch, waited

    def _learn(self, step: Step, batch: Batch, waited: float) -> bool:
        """Compute, count and log a step; return whether any rank has a stop request."""
        self.watchdog.sign(step.index, OTHERS)
        indices, ending = self.fetcher.count(step, batch, stopping=self.stop.wanted)
        self.watchdog.sign(step.index, COMPUTING)
        result = self.micro_batches(step, batch)
        before = self.state.totals.cpu_seconds
        took = self._clock.lap()
        with self._clock.paused():
            self.threads.count(took - waited, self.state.totals.cpu_seconds - before)
            self._waiting.count(step, self.fetcher.spent, data_seconds=waited, seconds=took)
        self.state.totals.data_seconds += waited
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
        """Validate and save after `done` steps if that is due, and stop if a stop is requested.

        Raises:
            Stopped: if it is.
        """
        evaluating = self.validation.is_due(done)
        saving = done == len(self.plan) or done % self.config.run.save_every == 0
        if evaluating or saving or ending:
            self.log.flush()  # waits for the device: training time ends here
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
        """Run the validation that a stop request interrupted before the resume.

        Raises:
            Stopped: if a stop request interrupts it again.
        """
        if self.state.totals.unevaluated:
            with self._clock.paused():
                if not self.validation.run(start):
                    self.callbacks.on_message(_stopped(start, self.plan))
                    self.stop.leave()
                self._save(start)

    def _save(self, done: int) -> None:
        """Save a checkpoint after `done` steps."""
        self.watchdog.sign(done, SAVING)
        self.fetcher.sync()
        self.state.save(done, write=self.ranks.first)
        self._saved = done

    def _report_waiting(self, step: Step, wait: str, advice: str) -> None:
        """Log a stage that waits for data. It is a message too if its cause and remedy are new."""
        self.log.slow_data(step, wait, advice)
        if advice not in self._advised:
            self.callbacks.on_message(f"{wait}: {advice}")
        self._advised.add(advice)

    def _result(self) -> TrainResult:
        totals = self.state.totals
        return TrainResult(
            model=self.state.evaluated,
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
    return f"stopped after step {done:,} of {len(plan):,}; checkpoint saved"


def _work(plan: Plan, step: Step) -> float:
    return step.cell.work / plan.baseline_shape.work
