"""Shows progress on stderr: a bar on a terminal, a line every 30 seconds elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from vcycle.console.output import errors, is_heard, message

if TYPE_CHECKING:
    from vcycle.plan import Plan
    from vcycle.train.outcome import StepReport

__all__ = ["Progress", "progress", "work_before"]

_LINE_EVERY = 30.0
"""Seconds between lines if stderr is not a terminal."""


class Progress(Protocol):
    """Progress of a command."""

    def begin(self, name: str, plan: "Plan") -> None:
        """Called when a training starts."""
        ...

    def step(self, report: "StepReport") -> None:
        """Called after each training step."""
        ...

    def end(self) -> None:
        """Called when a training ends, whether it was shown or not."""
        ...

    def count(self, what: str, done: int, total: int) -> None:
        """Called as other work advances: `done` of `total`."""
        ...


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress on stderr during the block. Print results before or after the block, not inside it."""
    if not errors.file.isatty() or not is_heard():
        yield _Lines()
        return
    from rich import progress as rich_progress

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TextColumn("{task.fields[status]}"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=errors, transient=True, redirect_stdout=False) as bar:
        yield _Bar(bar)


def work_before(plan: "Plan", step: int) -> float:
    """Work of the steps before `step`, in steps of the baseline; as fast for a long plan as for a short one."""
    if step == 0:
        return 0.0
    number = plan[step - 1].stage
    first = sum(stage.steps for stage in plan.stages[:number])
    stages = (*plan.stages[:number], replace(plan.stages[number], steps=step - first))
    # Drop the warmup, which may not end within these steps; the work does not depend on it.
    return replace(plan, baseline=replace(plan.baseline, warmup=None), stages=stages, warmup_samples=0.0).work()


class _Training:
    """Completed and total work of one training. The ETA counts work, because later grids cost more per step."""

    def __init__(self, name: str, plan: "Plan") -> None:
        self.name = name
        self.total = plan.work()
        self.steps = len(plan)
        self.done = 0.0
        self._plan = plan
        self._begun = False

    def add(self, report: "StepReport") -> None:
        """Count a step; the first one after a resume also counts all steps before it."""
        if not self._begun:
            self._begun = True
            self.done = work_before(self._plan, report.step.index)
        self.done += report.work

    def status(self, report: "StepReport") -> str:
        """The current state of training: step, loss, LR, batch shape, throughput."""
        step, speed = report.step, report.step.batch / report.seconds
        loss = "" if report.loss is None else f"loss {report.loss:.3g}  "
        return (
            f"step {step.index + 1:,}/{self.steps:,}  {loss}lr {_rate(step.lr)}  "
            f"{step.batch}×{step.shape.frames}×{step.shape.size}²  {speed:,.{0 if speed >= 10 else 1}f} clips/s"
        )


class _Bar:
    """Progress bars."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._tasks: dict[str, Any] = {}
        self._training: _Training | None = None

    def begin(self, name: str, plan: "Plan") -> None:
        self._training = _Training(name, plan)
        self._tasks[""] = self._bar.add_task(name, total=self._training.total, status="")

    def step(self, report: "StepReport") -> None:
        if self._training is not None:
            self._training.add(report)
            status = self._training.status(report)
            self._bar.update(self._tasks[""], completed=self._training.done, status=status)

    def end(self) -> None:
        if "" in self._tasks:
            self._bar.remove_task(self._tasks.pop(""))

    def count(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total, status="")
        self._bar.update(self._tasks[what], completed=done, status=f"{done:,} of {total:,}")
        if done == total:
            self._bar.remove_task(self._tasks.pop(what))


class _Lines:
    """Progress lines for a log file."""

    def __init__(self) -> None:
        self._training: _Training | None = None
        self._start = (0.0, 0.0)
        self._last = time.monotonic()
        self._begun: dict[str, tuple[float, int]] = {}

    def begin(self, name: str, plan: "Plan") -> None:
        self._training = _Training(name, plan)

    def step(self, report: "StepReport") -> None:
        training, now = self._training, time.monotonic()
        if training is None:
            return
        if training.done == 0.0:
            training.add(report)
            self._start = (now, training.done)
            return
        training.add(report)
        if report.step.index + 1 < training.steps and self._due(now):
            since, done = self._start
            left = (now - since) / (training.done - done) * (training.total - training.done)
            share = training.done / training.total
            message(
                f"{training.name}: {share:.0%} of the work  {training.status(report)}  about {_duration(left)} left"
            )

    def end(self) -> None:
        self._training = None

    def count(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        since, before = self._begun.setdefault(what, (now, done))
        if self._due(now):
            left = (
                f", about {_duration((now - since) / (done - before) * (total - done))} left"
                if before < done < total
                else ""
            )
            message(f"{what}: {done:,} of {total:,}{left}")
        if done >= total:
            self._begun.pop(what)  # another split starts again

    def _due(self, now: float) -> bool:
        due = now - self._last >= _LINE_EVERY
        if due:
            self._last = now
        return due


def _rate(lr: float) -> str:
    """A learning rate in its shortest form: 4e-3.

    >>> [_rate(lr) for lr in (0.5, 0.004, 0.00125, 0.0)]
    ['0.5', '4e-3', '1.25e-3', '0']
    """
    if lr == 0 or lr >= 0.1:
        return f"{lr:.3g}"
    digits, _, exponent = f"{lr:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
