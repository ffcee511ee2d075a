"""`vcycle demo`: compares plans on small generated datasets, in minutes and offline."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vcycle.console.arguments import Json, Out
from vcycle.errors import RecipeError, did_you_mean

__all__ = ["demo"]


def demo(
    task: Annotated[
        str, typer.Argument(metavar="[TASK]", help="recognition (moving digits) or superresolution.")
    ] = "recognition",
    out: Out = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds per plan; by default set by the demo.")] = None,
    json: Json = False,
) -> None:
    """Compare plans on small generated videos, in minutes and offline.

    The demo shows the speed-up of coarse-to-fine training: on recognition of moving digits, or on super-resolution of
    photographs under a moving camera.
    """
    from vcycle.cli.studies import demo_data, study
    from vcycle.console.figures import optional_figures
    from vcycle.console.progress import progress
    from vcycle.tasks.base import tasks
    from vcycle.tasks.recipes import load_recipe

    demos = {task.name: task.demo for task in tasks.values() if task.demo is not None}
    if task not in demos:
        raise RecipeError(f"demo {task!r} is unknown{did_you_mean(task, demos)}: {', '.join(demos)}")
    shown = demos[task]
    folder = out or Path(shown.folder)
    with progress() as bar:
        overrides = shown.make(folder, bar.count)
    recipe = load_recipe(shown.recipe, overrides)
    count = seeds or shown.seeds
    as_data = demo_data if shown.fixed_names else dict
    found = study(recipe, shown.plans, range(count), folder, title=shown.title, json=json, as_data=as_data)
    with optional_figures():
        shown.draw(_first_runs(folder, found), folder / "restored.png")


def _first_runs(folder: Path, found: Mapping[str, Any]) -> dict[str, Path]:
    """The folder of each plan's first run."""
    from vcycle.bench.study import run_folder

    first: dict[str, Path] = {}
    for run in found["runs"]:
        first.setdefault(run["arm"], run_folder(folder, run["arm"], run["seed"], run["key"]))
    return first
