"""What `vcycle train` does with a run once it is clear what is to be trained, whichever the task."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from vcycle.console import process
from vcycle.console.messages import plan_line, totals_line, training_data, warn_of_workers
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import Progress, progress

if TYPE_CHECKING:
    from vcycle.plan import Plan
    from vcycle.tasks.recipes import AnyRecipe
    from vcycle.train.outcome import Evaluation, Fitted, Point
    from vcycle.train.run import RunFolder

__all__ = ["carry_out"]


def carry_out(
    recipe: "AnyRecipe",
    planned: "Plan",
    run: "RunFolder",
    train: "Callable[[Progress, Callable[[Point], None]], Fitted]",
    headline: "Callable[[Evaluation], str]",
    *,
    json: bool,
) -> None:
    """Show the plan, train, and tell what came of it.

    Args:
        recipe: What is trained.
        planned: Its plan.
        run: The run's folder.
        train: Trains; given what shows its progress, and what is to be told of validations.
        headline: What is told of the last validation.
        json: Print one object instead.
    """
    if not json:
        result(planned.table())
    go_on = f"vcycle train {shlex.quote(str(run.path))} --resume"
    message(f"run: {run.path}; after an interruption, go on with `{go_on}`")
    warn_of_workers(recipe)
    with process.resumable(f"go on with `{go_on}`"), progress() as shown:
        fitted = train(shown, lambda point: message(plan_line(planned, point)))
    if json:
        print_json(training_data(run.path, planned, fitted))
        return
    result(headline(fitted.curve[-1].evaluation))
    result(totals_line(fitted))
