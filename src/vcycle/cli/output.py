"""What commands print: results on standard output, everything else on standard error."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from vcycle.plan import Plan
    from vcycle.train.loop import StepReport

__all__ = ["WorkBar", "message", "plan_data", "print_json", "result", "steps_bar"]

_errors = Console(stderr=True, highlight=False, soft_wrap=True)


def result(content: Any) -> None:
    """Print a result for people."""
    Console(highlight=False).print(content)


def print_json(data: Mapping[str, Any]) -> None:
    """Print one object for programs."""
    print(json.dumps(data, ensure_ascii=False))


def message(text: str) -> None:
    """Tell people something that is not a result."""
    _errors.print(text, markup=False)


def plan_data(plan: "Plan") -> dict[str, Any]:
    """A plan as `vcycle plan --json` prints it."""
    saving = plan.saving()
    return {
        "plan": plan.name,
        "fingerprint": plan.fingerprint,
        "steps": len(plan),
        "samples": plan.samples,
        "epochs": plan.epochs,
        "saving": {"steps": saving.steps, "work": saving.work},
        "stages": [
            {
                "name": stage.name,
                "steps": stage.steps,
                "frames": stage.base.frames,
                "size": stage.base.size,
                "batch": stage.base.batch,
                "lr": stage.rate.at(0.0),
                "pattern": [{"frames": c.frames, "size": c.size, "batch": c.batch} for c in stage.pattern],
            }
            for stage in plan.stages
        ],
    }


class WorkBar:
    """A progress bar that counts work, so that its ETA knows that later grids cost more."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def begin(self, name: str, plan: "Plan") -> None:
        """Start the bar of a training."""
        self._tasks[""] = self._progress.add_task(name, total=plan.work(), status="")

    def step(self, report: "StepReport") -> None:
        """Count a step."""
        step = report.step
        status = f"step {step.index + 1:,}  {step.batch}×{step.shape.frames}×{step.shape.size}²  {step.batch / report.seconds:,.0f} clips/s"
        self._progress.update(self._tasks[""], advance=report.work, status=status)

    def resumed(self, work: float) -> None:
        """Count work that an earlier process has done."""
        self._progress.update(self._tasks[""], advance=work)

    def count(self, what: str, done: int, total: int) -> None:
        """Show how far some other work is."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total, status="")
        self._progress.update(self._tasks[what], completed=done, status=f"{done:,} of {total:,}")

    def end(self) -> None:
        """Remove the bar of the training."""
        self._progress.remove_task(self._tasks.pop(""))


@contextmanager
def steps_bar() -> Iterator[WorkBar]:
    """Progress on standard error, while it lasts."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_errors, transient=True) as progress:
        yield WorkBar(progress)
