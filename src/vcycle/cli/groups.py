"""Groups of commands whose main command takes a recipe: `vcycle bench RECIPE` beside `vcycle bench data`."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["RECIPE", "OfRecipe", "RecipeOrCommand"]

RECIPE = "RECIPE"
"""Name of the hidden command that takes a recipe."""


class RecipeOrCommand(TyperGroup):
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


class OfRecipe(TyperCommand):
    """The hidden recipe command; its usage line omits the name, which is the first argument."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Usage without the first argument."""
        return [piece for piece in super().collect_usage_pieces(ctx) if RECIPE not in piece]
