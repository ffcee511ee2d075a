"""`vcycle bench`: measures training steps and data loading on this machine."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.cli import stepping
from vcycle.cli.groups import RECIPE, Command, OfRecipe, RecipeOrCommand
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.data import VideoList
    from vcycle.plan import Plan, Shape

__all__ = ["bench"]


_ANY_CLIPS = 10_000
"""Assumed length of an unknown dataset; a plan's shapes do not depend on it."""

bench = typer.Typer(
    cls=RecipeOrCommand,
    help="Measure training steps or data loading on this machine.\n\n`vcycle bench videos/small` times the steps of a "
    "recipe, and `vcycle bench RECIPE -h` lists its options.",
)
bench.command(RECIPE, cls=OfRecipe)(stepping.bench_recipe)


@bench.command("data", cls=Command)
def bench_data(
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="Your videos, measured next to generated ones.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="RECIPE", help="Measure every grid of this recipe's plan.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for videos and results, reused; by default a temporary one."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smoke test: the numbers are not reliable.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Measure data throughput, in clips/s per core.

    Compares a plain PyAV loop, vcycle, prepared data, and the loader. A few of your videos are prepared as by
    `vcycle prepare`; nothing is written to their folder.
    """
    from vcycle.bench.data.study import DEFAULT_GRIDS, DEFAULT_SHAPES, Effort, some_videos
    from vcycle.bench.data.study import bench_data as measure
    from vcycle.utils.folders import make_folder

    effort = Effort.quick() if quick else Effort()
    shapes: Sequence[Shape] = DEFAULT_SHAPES
    grids, short_side = DEFAULT_GRIDS, 128
    if recipe is not None:
        from vcycle.data.prepare.settings import short_side_for
        from vcycle.tasks.base import tasks
        from vcycle.tasks.recipes import load_recipe

        loaded = load_recipe(recipe)
        task = tasks[loaded.task]
        shapes = _clip_shapes(task.plan(loaded, task.length(loaded) or _ANY_CLIPS))
        grids, short_side = task.grids(loaded), short_side_for(loaded.training.size)
    if out is not None:
        make_folder(out)
    own = None
    if data is not None:
        own, errors = some_videos(_videos(data, recipe), effort.files)
        for error in errors:
            message(f"skipped: {error}")
    with TemporaryDirectory(prefix="vcycle-bench-") as temporary, progress() as shown:
        found = measure(
            out or Path(temporary),
            effort=effort,
            own=own,
            shapes=shapes,
            grids=grids,
            short_side=short_side,
            progress=shown.count,
        )
    if out is not None:
        _append(out / "data.jsonl", {"recipe": recipe, "data": data} | found)
    if json:
        print_json(found)
        return
    _tell(found)


def _clip_shapes(plan: "Plan") -> "Sequence[Shape]":
    """The distinct clip shapes of a plan, smallest first."""
    shapes = {(shape.frames, shape.size): shape.shape for shape in plan.shapes}
    return [shapes[key] for key in sorted(shapes)]


def _videos(data: str, recipe: str | None) -> "VideoList":
    from vcycle.data.locations import given_location
    from vcycle.data.prepare.names import is_prepared
    from vcycle.tasks.base import tasks
    from vcycle.tasks.recipes import recipe_of_data

    path = given_location(data)
    if is_prepared(path):
        raise RecipeError(f"{data} is already prepared: pass the original videos")
    loaded = recipe_of_data(data, recipe, None, None)
    return tasks[loaded.task].video_files(loaded)["train"]


def _append(path: Path, found: dict[str, Any]) -> None:
    from json import dumps

    from vcycle.console.output import plain
    from vcycle.errors import VcycleError

    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(dumps(plain(found)) + "\n")
    except OSError as error:
        raise VcycleError(f"{path} cannot be written: {error.strerror}") from error
    message(f"results: {path}")


def _tell(found: dict[str, Any]) -> None:
    from vcycle.report.throughput import loader_table, readers_table, target_table, throughput_notes

    for measured in found["sets"]:
        result(readers_table(measured))
    if found["loader"]:
        result(loader_table(found["loader"]))
    result(target_table(found["targets"]))
    for line in throughput_notes(found):
        result(line)
