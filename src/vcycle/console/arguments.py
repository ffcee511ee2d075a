"""Options and arguments shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.completion import complete_overrides, complete_recipes
from vcycle.errors import RecipeError

__all__ = [
    "Json",
    "Out",
    "Overrides",
    "Raw",
    "RecipeArgument",
    "names_recipe",
    "refuse_raw",
]

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A shipped recipe (see `vcycle recipes`), a YAML file, or the folder of a run.",
        autocompletion=complete_recipes,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Changes to the recipe, such as training.batch=16 or data=videos/.",
        autocompletion=complete_overrides,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Output folder.")]
Raw = Annotated[bool, typer.Option("--raw", help="Use the raw weights rather than their EMA (training.ema).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]

_WEIGHTS = (".pt", ".pth", ".pkl", ".safetensors")
"""Suffixes of weight files; such a name is never a recipe, even if the file does not exist."""


def names_recipe(name: Path) -> bool:
    """Whether a name is a recipe, rather than a run or a weight file."""
    weights = name.is_file() or name.suffix in _WEIGHTS
    return not name.is_dir() and (name.suffix in (".yaml", ".yml") or not weights)


def refuse_raw(recipe: Path, raw: bool) -> None:
    """Refuse `--raw` for a recipe, whose initial weights have no EMA.

    Raises:
        RecipeError: if `raw` is set.
    """
    if raw:
        raise RecipeError(f"--raw needs a run: {recipe} is a recipe, whose init has no EMA")
