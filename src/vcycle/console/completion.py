"""Completion of recipes and their keys by the shell. Runs at each press of Tab, so nothing here imports torch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import typer

__all__ = ["complete_overrides", "complete_recipes", "sources"]


@dataclass
class _Sources:
    """Where completions come from; the command line sets this, as the console knows no recipes."""

    recipes: Callable[[], Iterable[str]] = tuple
    """Returns the names of recipes."""
    keys: Callable[[str], Iterable[str]] = lambda recipe: ()
    """Returns the dotted keys of a recipe, such as `training.batch`."""
    plans: Callable[[str], Iterable[str]] = lambda recipe: ()
    """Returns the names of a recipe's plans."""


sources = _Sources()
"""Where completions come from."""


def complete_recipes(incomplete: str) -> list[str]:
    """Names of recipes that start with the text; where there is none, a shell completes files."""
    return [name for name in sources.recipes() if name.startswith(incomplete)]


def complete_overrides(context: typer.Context, incomplete: str) -> list[str]:
    """Keys of the command's recipe with `=`, or names of its plans after `plan=`."""
    recipe = context.params.get("recipe")
    if not isinstance(recipe, str):
        return []
    given = [text for text in context.params.get("overrides") or () if text != "="]
    if given and "=" not in given[-1]:  # bash takes `=` for a word of its own
        return [name for name in sources.plans(recipe) if given[-1] == "plan" and name.startswith(incomplete)]
    key, is_value, begun = incomplete.partition("=")
    if is_value:
        return [f"plan={name}" for name in sources.plans(recipe) if key == "plan" and name.startswith(begun)]
    return [f"{key}=" for key in sources.keys(recipe) if key.startswith(incomplete)]
