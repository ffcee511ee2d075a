"""What the commands that look through a dataset are given, and what it is then."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.errors import DataError, RecipeError

if TYPE_CHECKING:
    from vcycle.tasks.recipes import AnyRecipe
    from vcycle.tasks.recognition.recipe import Recipe

__all__ = [
    "PATIENCE",
    "Data",
    "DataOverrides",
    "Layout",
    "RecipeOption",
    "Workers",
    "dataset_of",
    "files",
    "refuse",
    "videos_of",
]

PATIENCE = 60.0
"""Seconds without progress after which a file is given up."""

_ANY_RECIPE = "videos/small"
"""Where no recipe is given, only its `data` section is used, with the user's changes."""

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


def dataset_of(
    data: str, recipe: str | None, layout: str | None, overrides: Sequence[str] | None, *also: str
) -> "AnyRecipe":
    """The recipe that the data is meant for, with its paths absolute; one of recognition where none is named.

    Args:
        data: What its key `data` becomes.
        recipe: Its name.
        layout: What its key `data.layout` becomes.
        overrides: The user's changes.
        also: Changes that come before the user's.

    Raises:
        RecipeError: if it or a change is not as it should be.
    """
    from vcycle.tasks.recipes import load_any, with_absolute_paths

    given = list(overrides or ())
    if wrong := next((text for text in given if recipe is None and not text.startswith("data.")), None):
        raise RecipeError(f"{wrong!r}: without --recipe, only keys of data can be changed, such as data.val=FILE")
    if layout is not None:
        given.append(f"data.layout={layout}")
    path = str(Path(data).expanduser())
    return with_absolute_paths(load_any(recipe or _ANY_RECIPE, [f"data={path}", *also, *given]))


def videos_of(data: str, recipe: str | None, layout: str | None, overrides: Sequence[str] | None) -> "Recipe":
    """The recipe of recognition that the data is meant for; see `dataset_of`.

    Raises:
        RecipeError: also if it is of another task.
    """
    from vcycle.tasks.recipes import load_any, recognition

    name = recipe or _ANY_RECIPE
    if load_any(name).task != "recognition":
        raise RecipeError(f"--recipe {name} is of super-resolution: `--to tiles` prepares clips for it")
    return recognition(dataset_of(data, recipe, layout, overrides, "data.digits=null"), name)


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
