"""Options and arguments shared by several commands."""

import re
from pathlib import Path
from typing import Annotated

import typer

from vcycle.errors import RecipeError

__all__ = [
    "Json",
    "Out",
    "Overrides",
    "Raw",
    "RecipeArgument",
    "ViewsOption",
    "names_recipe",
    "refuse_raw",
    "views_as_overrides",
]

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
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Output folder.")]
Raw = Annotated[bool, typer.Option("--raw", help="Use the raw weights rather than their EMA (training.ema).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]

ViewsOption = Annotated[
    str | None,
    typer.Option("--views", metavar="KxJ", help="K clips of J crops each, such as 10x3; by default the recipe's."),
]

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


def views_as_overrides(text: str | None) -> list[str]:
    """Convert `--views` to overrides of the recipe.

    Raises:
        RecipeError: if it is not clips x crops.
    """
    if text is None:
        return []
    found = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text.strip())
    if found is None or 0 in (int(found[1]), int(found[2] or 1)):
        raise RecipeError(f"--views {text}: clips x crops, such as 1x1, 10x1 or 10x3, is accepted")
    return [f"evaluation.clips={found[1]}", f"evaluation.crops={found[2] or 1}"]
