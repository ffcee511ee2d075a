"""`vcycle check`: decodes a dataset and lists its bad files."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json
from vcycle.console.datasets import (
    PATIENCE,
    PREPARED,
    Data,
    DataOverrides,
    Layout,
    RecipeOption,
    Workers,
    refuse,
)
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.console.summary import summary_lines
from vcycle.utils.units import counted

__all__ = ["check"]


def check(
    data: Data,
    overrides: DataOverrides = None,
    recipe: RecipeOption = None,
    layout: Layout = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read packets without decoding: finds unreadable and truncated files.")
    ] = False,
    workers: Workers = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=1, help="Seconds without progress after which a file counts as bad; by default 60."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Decode every file of a dataset: which are bad, and what it is.

    The last lines say what to run next. For a prepared dataset, checksums are compared. With --recipe, the data is
    read as the recipe's task reads it. Nothing is written. The exit code is 1 if a file is bad.
    """
    from vcycle.data import check_prepared, is_prepared, load_index
    from vcycle.data.locations import given_location
    from vcycle.tasks.base import CheckOptions, tasks
    from vcycle.tasks.recipes import load_recipe, recipe_of_data

    folder = given_location(data)
    of_files: dict[str, object] = {"--quick": quick, "--timeout": timeout}
    of_recipes = {"--layout": layout, "KEY=VALUE": overrides}
    kind = "file"
    with progress() as shown:
        if is_prepared(folder):
            refuse(PREPARED, of_files | of_recipes)
            report = check_prepared(load_index(folder), workers=workers, progress=shown.count)
        else:
            owners = (task for task in tasks.values() if isinstance(folder, Path) and task.owns(folder))
            task = next(owners, None)
            loaded = None
            if task is None:
                if recipe is not None:
                    load_recipe(recipe)  # an unknown recipe is reported before faults of the data
                loaded = recipe_of_data(data, recipe, layout, overrides)
                task = tasks[loaded.task]
            else:
                refuse(PREPARED, of_recipes)
            options = CheckOptions(
                folder=folder,
                recipe=recipe,
                overrides=[*([] if layout is None else [f"data.layout={layout}"]), *(overrides or ())],
                quick=quick,
                workers=workers,
                timeout=timeout,
                patience=timeout or PATIENCE,
            )
            report, kind = task.check_files(loaded, options, shown.count, message)
    if json:
        print_json({"data": str(folder)} | asdict(report))
    else:
        for path, cause in report.bad.items():
            result(f"bad: {path}: {cause}")
        for path, cause in report.damaged.items():
            result(f"damaged: {path}: {cause}")
        result(f"{counted(report.videos, kind)}: {len(report.bad):,} bad, {len(report.damaged):,} damaged")
        for line in summary_lines(report.summary):
            result(line)
    if report.bad:
        raise typer.Exit(1)
