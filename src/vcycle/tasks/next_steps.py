"""What to run after `vcycle check`: what every task proposes."""

from shlex import quote
from typing import TYPE_CHECKING

from vcycle.tasks.base import CheckOptions

if TYPE_CHECKING:
    from vcycle.data.prepare.summary import NextStep

__all__ = ["command", "plan_steps", "prepared_folder"]


def command(name: str, *arguments: str) -> str:
    """A command line of vcycle, quoted for a shell."""
    return f"vcycle {name} {' '.join(map(quote, arguments))}"


def prepared_folder(options: CheckOptions) -> str:
    """A folder in the current one for the prepared data."""
    name = options.folder.name.partition(".")[0]
    return f"{name or 'data'}-prepared"


def plan_steps(recipe: str, options: CheckOptions, why: str) -> "list[NextStep]":
    """Commands that show a recipe's plan on the data, and propose a better one.

    Args:
        recipe: The recipe's name.
        options: The options of the check.
        why: Why this recipe.
    """
    from vcycle.data.prepare.summary import NextStep

    given = (recipe, f"data={options.folder}", *options.overrides)
    return [
        NextStep(command=command("plan", *given), why=why),
        NextStep(
            command=command("plan auto", *given), why="times this machine and trains briefly, then proposes a plan"
        ),
    ]
