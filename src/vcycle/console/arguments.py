"""What several commands are given, and the recipe that comes of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.tasks.recipes import AnyRecipe

__all__ = ["Json", "Out", "Overrides", "Raw", "RecipeArgument", "load_any", "names_recipe", "refuse_raw"]

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A shipped recipe (see `vcycle recipes`), a YAML file, or the folder of a run."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Changes to the recipe, such as training.batch=16 or data=videos/."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for everything that is written.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="The weights themselves, where a run keeps an average of them (training.ema) too.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]

_WEIGHTS = (".pt", ".pth", ".pkl", ".safetensors")
"""Endings of what is no recipe even where there is no such file."""


def load_any(recipe: str, overrides: Sequence[str] | None) -> "AnyRecipe":
    """A recipe of either task, with its paths absolute.

    Raises:
        RecipeError: if it or an override is not as it should be.
    """
    from vcycle.tasks import recipes as loading

    return loading.with_absolute_paths(loading.load_any(recipe, _changes(overrides)))


def names_recipe(name: Path) -> bool:
    """Whether a recipe is named, rather than a run or a file of weights."""
    weights = name.is_file() or name.suffix in _WEIGHTS
    return not name.is_dir() and (name.suffix in (".yaml", ".yml") or not weights)


def refuse_raw(recipe: Path, raw: bool) -> None:
    """Refuse to go past an average that a recipe's first weights do not have.

    Raises:
        RecipeError: saying what has one.
    """
    if raw:
        raise RecipeError(f"--raw goes with a run: {recipe} is a recipe, whose init is one set of weights")


def _changes(overrides: Sequence[str] | None) -> list[str]:
    for override in overrides or ():
        if "=" not in override and Path(override).exists():
            raise RecipeError(f"{override!r} is a path without a key: data={override} gives the videos")
    return [_expand_home(override) for override in overrides or ()]


def _expand_home(override: str) -> str:
    """Not every shell replaces the ~ of `data=~/videos`."""
    key, equals, value = override.partition("=")
    return f"{key}{equals}{Path(value).expanduser()}" if value.startswith("~/") else override
