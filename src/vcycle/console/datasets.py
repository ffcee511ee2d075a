"""What the commands that look through a dataset are given, and what it is then."""

from collections.abc import Mapping
from typing import Annotated

import typer

from vcycle.errors import DataError

__all__ = [
    "PATIENCE",
    "PREPARED",
    "Data",
    "DataOverrides",
    "Layout",
    "RecipeOption",
    "Workers",
    "files",
    "refuse",
]

PATIENCE = 60.0
"""Seconds without progress after which a file is given up."""

PREPARED = "goes with data that was not prepared: of this, all is compared with what was written"

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="The videos: a folder or a list file, as `data` of a recipe.")
]
DataOverrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe, such as data.val=val.csv or data.fold=2."),
]
RecipeOption = Annotated[str | None, typer.Option("--recipe", metavar="RECIPE", help="The recipe to be trained.")]
Layout = Annotated[str | None, typer.Option("--layout", help="How the videos lie; data.layout of a recipe.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; by default one per core.")]


def refuse(reason: str, options: Mapping[str, object]) -> None:
    """Refuse options that another form of the data takes.

    Raises:
        DataError: naming the first that is given.
    """
    if given := next((name for name, value in options.items() if value not in (None, [], False)), None):
        raise DataError(f"{given} {reason}")


def files(count: int, one: str = "file") -> str:
    """How many."""
    return f"1 {one}" if count == 1 else f"{count:,} {one}s"
