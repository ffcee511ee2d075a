"""`vcycle demo`: compares plans on small generated datasets, in minutes and offline."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vcycle.console import process
from vcycle.console.arguments import Json, Out
from vcycle.errors import RecipeError, did_you_mean
from vcycle.tasks.base import tasks

__all__ = ["demo"]

_DEMOS = {task.name: task.demo for task in tasks.values() if task.demo is not None}


def demo(
    task: Annotated[
        str,
        typer.Argument(
            metavar="[TASK]", help=f"{', or '.join(f'{name} ({shown.about})' for name, shown in _DEMOS.items())}."
        ),
    ] = next(iter(_DEMOS)),
    out: Out = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds per plan; by default set by the demo.")] = None,
    json: Json = False,
) -> None:
    """Compare plans on small generated videos, in minutes and offline.

    The demo shows the speed-up of coarse-to-fine training on one task.
    """
    from vcycle.bench.jobs import most_jobs
    from vcycle.cli.studies import study
    from vcycle.console.figures import optional_figures
    from vcycle.console.progress import progress
    from vcycle.tasks.recipes import load_recipe

    if task not in _DEMOS:
        raise RecipeError(f"demo {task!r} is unknown{did_you_mean(task, _DEMOS)}: {', '.join(_DEMOS)}")
    shown = _DEMOS[task]
    folder = out or Path(shown.folder)
    with process.resumable("the same command resumes it"), progress() as bar:
        overrides = shown.make(folder, bar.count)
    recipe = load_recipe(shown.recipe, overrides)
    count = seeds or shown.seeds
    found = study(
        recipe,
        shown.plans,
        range(count),
        folder,
        title=f"vcycle demo: {shown.about}",
        json=json,
        margin=shown.margin,
        jobs=most_jobs(recipe, count * len(shown.plans)),
        as_data=shown.as_data,
    )
    with optional_figures():
        shown.draw(_first_runs(folder, found), folder)


def _first_runs(folder: Path, found: Mapping[str, Any]) -> dict[str, Path]:
    """The folder of each plan's first run."""
    from vcycle.bench.study import run_folder

    first: dict[str, Path] = {}
    for run in found["runs"]:
        first.setdefault(run["arm"], run_folder(folder, run["arm"], run["seed"], run["key"]))
    return first
