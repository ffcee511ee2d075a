"""Commands whose help keeps names whole, and groups whose main command takes a recipe.

`vcycle bench RECIPE` stands beside `vcycle bench data`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["RECIPE", "Command", "Group", "OfRecipe", "RecipeOrCommand"]

RECIPE = "RECIPE"
"""Name of the hidden command that takes a recipe."""


_HYPHEN = "\u2011"
"""Stands for a hyphen where lines are broken: no line is broken at it."""


class _WholeNames:
    """Help that has every name on one line: `--batch-size` or `torch-export` is not broken at a hyphen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        with _whole_names(formatter):
            super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_WholeNames, TyperCommand):
    """A command."""


class Group(_WholeNames, TyperGroup):
    """A group of commands."""


@contextmanager
def _whole_names(formatter: Any) -> Iterator[None]:
    """Let a formatter of help break lines between words only."""
    write_text, write_dl = formatter.write_text, formatter.write_dl

    def text(words: str) -> None:
        write_text(words.replace("-", _HYPHEN))

    def definitions(rows: Iterable[tuple[str, str]], *args: Any, **options: Any) -> None:
        write_dl([(name, words.replace("-", _HYPHEN)) for name, words in rows], *args, **options)

    formatter.write_text, formatter.write_dl = text, definitions
    yield
    formatter.buffer[:] = [part.replace(_HYPHEN, "-") for part in formatter.buffer]


class RecipeOrCommand(Group):
    """Treats an unknown subcommand as the name of a recipe."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the hidden recipe command before a recipe's name, or alone, so that it misses the recipe."""
        if not args and ctx.resilient_parsing:  # the shell completes the first argument
            return super().parse_args(ctx, args)
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = [RECIPE, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Subcommands and recipes that start with the text."""
        recipe = next(each for each in self.commands[RECIPE].params if each.name == "recipe")
        return [*super().shell_complete(ctx, incomplete), *recipe.shell_complete(ctx, incomplete)]


class OfRecipe(Command):
    """The hidden recipe command; its usage line omits the name, which is the first argument."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Usage without the first argument."""
        return [piece for piece in super().collect_usage_pieces(ctx) if RECIPE not in piece]
