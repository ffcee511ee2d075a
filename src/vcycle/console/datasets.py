"""Options of the commands that scan a dataset (`check`, `prepare`)."""

from collections.abc import Mapping
from typing import Annotated

import typer

from vcycle.console.completion import complete_overrides, complete_recipes
from vcycle.errors import DataError

__all__ = [
    "PATIENCE",
    "PREPARED",
    "Data",
    "DataOverrides",
    "EngineOption",
    "Layout",
    "Merge",
    "PartOption",
    "RecipeOption",
    "Workers",
    "refuse",
]

PATIENCE = 60.0
"""Seconds without progress after which a file counts as bad."""

PREPARED = "does not apply to prepared data, whose checksums are all compared"

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="The videos: a folder or a list file, as `data` in a recipe.")
]
DataOverrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Changes to the recipe, such as data.val=val.csv.",
        autocompletion=complete_overrides,
    ),
]
RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", metavar="RECIPE", help="The recipe to train.", autocompletion=complete_recipes),
]
Layout = Annotated[str | None, typer.Option("--layout", help="Folder layout, as data.layout in a recipe.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; by default one per core.")]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="local|ray",
        help="Where files are processed: on this machine, or on the Ray cluster of RAY_ADDRESS.",
    ),
]
PartOption = Annotated[
    str | None,
    typer.Option("--part", metavar="K/N", help="Process one of N parts of the files, as a job of an array."),
]
Merge = Annotated[bool, typer.Option("--merge", help="Check that all parts are complete, and merge them.")]


def refuse(reason: str, options: Mapping[str, object]) -> None:
    """Refuse options that do not apply to this form of the data.

    Raises:
        DataError: naming the first one given.
    """
    if given := next((name for name, value in options.items() if value not in (None, [], False)), None):
        raise DataError(f"{given} {reason}")
