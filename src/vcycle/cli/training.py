"""`vcycle train`: trains a recipe in one process, or data parallel under torchrun."""

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.console import process
from vcycle.console.arguments import Json, Out, Overrides, RecipeArgument
from vcycle.console.distributed import shared
from vcycle.console.messages import plan_line, totals_line, training_data, warn_of_workers
from vcycle.console.output import message, message_of_rank, print_json, result, results
from vcycle.console.progress import progress

if TYPE_CHECKING:
    from vcycle.config.recipe import RecipeBase
    from vcycle.plan import Plan
    from vcycle.runs.experiment import Experiment
    from vcycle.train.outcome import StepReport, TrainResult
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder

__all__ = ["train"]


def train(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the newest checkpoint in the run's folder.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a recipe on its data.

    Recipe, plan, log and checkpoints are saved in --out, by default runs/RECIPE-PLAN.
    `vcycle train RUN --resume` resumes the run.
    """
    from vcycle.runs.resume_guard import refuse_missing_run
    from vcycle.tasks.recipes import load_given

    if resume:
        refuse_missing_run(recipe)
    loaded = load_given(recipe, overrides)

    from vcycle.train.ranks import restarted
    from vcycle.train.run import RunFolder

    run = RunFolder(out or _default_folder(recipe, loaded.plan))
    with shared() as ranks:
        _train(loaded, run, ranks, resume=resume or restarted(), json=json)


def _train(recipe: "RecipeBase", run: "RunFolder", ranks: "Ranks", *, resume: bool, json: bool) -> None:
    from vcycle.runs.experiment import Experiment
    from vcycle.runs.left_out import left_out_by
    from vcycle.runs.train import probe_plans, start

    with progress() as shown:
        experiment = Experiment(recipe, run.path.parent, on_progress=shown.count)
        with ranks.one_after_another():
            _ = experiment.splits
        known = left_out_by(run) if resume and run.started else None
        dead = ranks.from_first(lambda: experiment.leave_out(known))
        if not ranks.first:
            experiment.leave_out(dead)
        planned = experiment.plan()
        notes = experiment.check(planned, fresh=not run.started, world=ranks.world)
        probe_plans(recipe, len(experiment.classes), [planned], ranks=ranks)
    with run.withdrawn() if ranks.first else nullcontext():
        resumed = start(experiment, planned, run, resume=resume, ranks=ranks)  # fail before hours of decoding
        message(experiment.task.describe(recipe, experiment.splits))
        for note in [*experiment.task.notices(recipe, experiment.splits, planned), *notes]:
            message(note)
        if json:
            for note in planned.notes:  # the table has them too
                message(note)
        else:
            results(planned.table())
        warn_of_workers(recipe)
        trained = _carry_out(experiment, planned, run, ranks, resume=resume, resumed=resumed)
    evaluator, last = experiment.evaluator("val", "validation"), trained.curve[-1].evaluation
    if (warning := evaluator.warning(last)) is not None:
        message(f"warning: {warning}")
    if json:
        print_json(training_data(run.path, planned, trained))
        return
    result(evaluator.line(last, "val"))
    result(totals_line(trained))


def _carry_out(
    experiment: "Experiment", planned: "Plan", run: "RunFolder", ranks: "Ranks", *, resume: bool, resumed: bool
) -> "TrainResult":
    """Train, and print the resume command at the first step."""
    from vcycle.runs.train import train as train_run
    from vcycle.train.callbacks import Callbacks

    command = f"vcycle train {shlex.quote(str(run.path))} --resume"
    reported = False
    with process.resumable(f"resume with `{command}`"), progress() as shown:

        def on_step(report: "StepReport") -> None:
            nonlocal reported
            if not reported:
                message(f"run: {run.path}; after an interruption, resume with `{command}`")
                reported = True
            shown.step(report)

        experiment.on_progress = shown.count
        return train_run(
            experiment,
            planned,
            run,
            resume=resume,
            resumed=resumed,
            ranks=ranks,
            on_start=lambda: shown.begin(planned.name, planned),
            callbacks=Callbacks(
                on_step=on_step,
                on_validation=lambda point: message(plan_line(planned, point)),
                on_message=message_of_rank,
                on_progress=shown.count,
            ),
        )


def _default_folder(recipe: str, planned: str) -> Path:
    """The default run folder: a run's own folder, or a new one named after the recipe and plan."""
    from vcycle.train.run import RunFolder

    # A folder of videos may have the name of a shipped recipe; it is not a run's folder.
    if RunFolder(Path(recipe)).recipe.is_file():
        return Path(recipe)
    return Path("runs") / f"{Path(recipe).stem}-{planned.replace(':', '-')}"
