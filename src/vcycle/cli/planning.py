"""`vcycle plan`: shows the plan of a recipe; `vcycle plan auto` proposes one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.cli.groups import RECIPE, Command, OfRecipe, RecipeOrCommand
from vcycle.console import process
from vcycle.console.arguments import Json, Overrides, RecipeArgument
from vcycle.console.output import message, plan_data, print_json, result, results
from vcycle.errors import RecipeError, VcycleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcycle.bench.auto.propose import Found
    from vcycle.bench.runs import ArmRun, Failure
    from vcycle.config.recipe import RecipeBase
    from vcycle.plan import BatchShape

__all__ = ["plan"]

plan = typer.Typer(
    cls=RecipeOrCommand,
    help="Show the plan of a recipe, or propose one.\n\n"
    "`vcycle plan videos/small` shows it, `vcycle plan auto` proposes one, `vcycle plan RECIPE -h` lists the options.",
)


@plan.command(RECIPE, cls=OfRecipe)
def plan_recipe(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    flops: Annotated[
        bool, typer.Option("--flops", help="Count the work in FLOPs of the recipe's model, forward and backward.")
    ] = False,
    json: Json = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save a plot of shapes, batch size and LR.")] = None,
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="FILE", help="Write every step as a row of a CSV file; `-` for stdout."),
    ] = None,
) -> None:
    """Show the plan of a recipe: stages, shapes, LR, savings."""
    from vcycle.console.figures import save_figure
    from vcycle.console.rows import print_rows, save_rows
    from vcycle.runs.experiment import Experiment
    from vcycle.tasks.base import tasks
    from vcycle.tasks.plans import check_names
    from vcycle.tasks.recipes import load_given
    from vcycle.train.loggers import check_loggers

    if json and steps == "-":
        raise RecipeError("--json and --steps - both print to stdout: give one of them, or a file to --steps")
    loaded = load_given(recipe, overrides)
    task = tasks[loaded.task]
    check_names(task.plans, [loaded.plan])
    check_loggers(loaded.run.loggers)
    loaded.run.check_torch()
    outputs = task.outputs(loaded)
    if loaded.data.path is None:
        planned = task.plan(loaded, task.length(loaded))
        task.check_plan(loaded, planned)
        notes = task.plan_notices(loaded, planned, task.length(loaded))
    else:
        experiment = Experiment(loaded, Path())
        planned = experiment.plan()
        experiment.check_init()
        outputs = len(experiment.classes)
        message(task.describe(loaded, experiment.splits))
        notes = task.notices(loaded, experiment.splits, planned)
    for note in notes:
        message(note)
    cost = None
    if flops:
        cost = _counted(loaded, outputs)
        message(f"work: counted in FLOPs of model {loaded.model.name!r}, forward and backward")
    if figure is not None:
        save_figure(planned.figure(cost), figure)
    if steps == "-":
        print_rows(planned.rows())
        return
    if steps is not None:
        save_rows(planned.rows(), Path(steps))
    if json:
        print_json(plan_data(planned, cost))
    else:
        results(planned.table(cost))


def _counted(recipe: "RecipeBase", outputs: int) -> "Callable[[BatchShape], int]":
    """The FLOPs of a step of a recipe's model, each batch shape counted once."""
    from functools import cache, partial

    from vcycle.bench.steps.work import step_flops
    from vcycle.bench.steps.workload import workload_of

    return cache(partial(step_flops, workload_of(recipe, outputs)))


@plan.command("auto", cls=Command)
def plan_auto(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours", help="The best plan that ends within this time.  [default: the time of the recipe's own plan]"
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target", help="The shortest plan that reaches this value, in the unit of the measure, or as a share."
        ),
    ] = None,
    pilot: Annotated[
        float,
        typer.Option(
            "--pilot", min=0.0, max=1.0, help="Time of a pilot's longest training, as a share of the plan's; 0: none."
        ),
    ] = 0.25,
    plans: Annotated[int, typer.Option("--plans", min=2, help="Plans that the pilot trains.")] = 6,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Repeats of each batch shape.")] = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Seconds per repeat; at least one step.")] = 0.3,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the recipe with the proposed plan to this YAML file.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option("--work", help="Folder for the measured times and the pilot.  [default: runs/auto-RECIPE]"),
    ] = None,
    json: Json = False,
) -> None:
    """Propose a plan from measured steps and a short pilot.

    Every batch shape is timed on this machine, then the most promising plans train for a short time. The pilot trains
    on the recipe's training data, a part of which it holds out to judge the plans. The proposal is printed with its
    reasons and, with -o, written as a recipe; nothing is changed. The same command resumes a search.
    """
    from vcycle.cli.studies import tell_of_run
    from vcycle.tasks.base import tasks
    from vcycle.tasks.plans import check_names
    from vcycle.tasks.recipes import load_given

    loaded = load_given(recipe, overrides)
    task = tasks[loaded.task]
    check_names(task.plans, [loaded.plan])
    wanted_target = _check(loaded, hours, target, pilot, out)
    folder = work or Path("runs") / f"auto-{Path(recipe).stem}"

    from vcycle.bench.auto.propose import Wanted, propose
    from vcycle.bench.steps.turns import Effort
    from vcycle.bench.warn_once import warn_once
    from vcycle.console.progress import progress
    from vcycle.train.callbacks import Callbacks

    wanted = Wanted(
        budget=None if hours is None else 3600 * hours,
        target=wanted_target,
        share=pilot,
        plans=plans,
        effort=Effort(repeats=repeats, seconds=seconds),
    )
    measure, say = task.measure(loaded), warn_once(message)
    with process.resumable("the same command resumes it"), progress() as shown:

        def ended(run: "ArmRun | Failure") -> None:
            tell_of_run(shown, run, measure)

        found = propose(
            loaded,
            folder,
            wanted,
            callbacks=Callbacks(on_step=shown.step, on_message=say, on_progress=shown.count),
            on_start=lambda arm, seed: shown.begin(f"{arm.name}, seed {seed}", arm.plan),
            on_run=ended,
        )
    if out is not None:
        _write(out, loaded, found)
    data = {"recipe": recipe} | found.as_data(loaded)
    if json:
        print_json(data)
        return
    from shlex import quote

    from vcycle.report.auto import candidates_table

    result(candidates_table(data))
    for reason in data["reasons"]:
        result(reason)
    result(f"proposed, not applied: {' '.join(map(quote, data['overrides']))}")


def _check(
    recipe: "RecipeBase", hours: float | None, target: float | None, pilot: float, out: Path | None
) -> float | None:
    """Check the options before anything is read; returns the target in the measure's scale."""
    from vcycle.cli.studies import target_of
    from vcycle.tasks.base import tasks

    if hours is not None and target is not None:
        raise VcycleError("--hours and --target: one of the two is accepted, the time or the value to reach")
    if hours is not None and not 0 < hours < float("inf"):
        raise VcycleError(f"--hours {hours:g}: a number above 0 is accepted")
    if target is not None and not pilot:
        raise VcycleError(
            "--target with --pilot 0: a pilot tells when a plan reaches the target; --pilot 0.25 is accepted"
        )
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise VcycleError(f"--out {out}: a recipe's file name ends in .yaml")
    if out is not None and out.exists():
        raise VcycleError(f"--out {out}: the file exists and is not overwritten")
    return target_of(tasks[recipe.task].measure(recipe), target)


def _write(file: Path, recipe: "RecipeBase", found: "Found") -> None:
    """Write the recipe with the proposed plan, under the reasons for it."""
    from vcycle.tasks.recipes import dump_recipe, parse_recipe
    from vcycle.utils.atomic import atomic_text
    from vcycle.utils.folders import make_folder

    reasons = "".join(f"# {reason}\n" for reason in found.as_data(recipe)["reasons"])
    chosen = dump_recipe(parse_recipe(dump_recipe(recipe), str(file), found.overrides(recipe)))
    make_folder(file.parent)
    atomic_text(file, reasons + chosen)
    message(f"recipe: {file}")
