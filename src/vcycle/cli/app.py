"""The `vcycle` command. Commands import torch lazily, so `--help` and `plan` answer at once."""

import sys
from typing import Annotated

import typer

from vcycle.cli import (
    benching,
    checking,
    comparing,
    demonstrating,
    doctoring,
    evaluating,
    exporting,
    importing,
    planning,
    preparing,
    reporting,
    training,
)
from vcycle.cli.groups import Command, Group
from vcycle.console import process
from vcycle.console.arguments import Json, RecipeArgument
from vcycle.console.completion import sources
from vcycle.console.output import print_json, result
from vcycle.errors import RecipeError
from vcycle.utils.ranks import launched_world

__all__ = ["app", "main"]

app = typer.Typer(
    name="vcycle",
    cls=Group,
    help="Train video models on a schedule of coarse-to-fine sampling grids: few frames and small pictures in large "
    "batches first, the full clip last. What that saves depends on the data; `vcycle compare` measures it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: flags show no type
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
recipes = typer.Typer(help="List the shipped recipes, or show one.", invoke_without_command=True, cls=Group)
app.add_typer(recipes, name="recipes")
app.add_typer(planning.plan, name="plan")
app.add_typer(benching.bench, name="bench")


def _recipe_names() -> list[str]:
    from vcycle.tasks.recipes import recipe_names

    return list(recipe_names())


def _recipe_keys(recipe: str) -> list[str]:
    from vcycle.tasks.recipes import dotted_keys, load_recipe

    return list(dotted_keys(type(load_recipe(recipe))))


def _plan_names(recipe: str) -> list[str]:
    from vcycle.tasks.base import tasks
    from vcycle.tasks.recipes import load_recipe

    return list(tasks[load_recipe(recipe).task].plans)


sources.recipes, sources.keys, sources.plans = _recipe_names, _recipe_keys, _plan_names


def main() -> None:
    """The `vcycle` command."""
    sys.exit(process.run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        from vcycle import __version__

        result(f"vcycle {__version__}")
        raise typer.Exit


_SHARED = ("train", "eval")
"""Commands that run data parallel under torchrun."""


@app.callback()
def _root(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # Both are handled earlier: `--debug` by `process.run`, which accepts it anywhere on the command line.
    if (world := launched_world()) > 1 and context.invoked_subcommand not in _SHARED:
        raise RecipeError(
            f"vcycle {context.invoked_subcommand} runs in a single process, but torchrun started {world} "
            f"(WORLD_SIZE={world}): only {' and '.join(_SHARED)} run on several"
        )


app.command(cls=Command)(training.train)
app.command(cls=Command)(comparing.compare)
app.command(cls=Command)(demonstrating.demo)
app.command("eval", cls=Command)(evaluating.evaluate)
app.command(cls=Command)(preparing.prepare)
app.command(cls=Command)(checking.check)
app.command(cls=Command)(doctoring.doctor)
app.command(cls=Command)(exporting.export)
app.command("import", cls=Command)(importing.import_)
app.command(cls=Command)(reporting.report)


def _add_task_commands() -> None:
    """Add the commands that tasks define."""
    from vcycle.registry import import_attribute
    from vcycle.tasks.base import tasks

    shared = {name: function for task in reversed([*tasks.values()]) for name, function in task.commands.items()}
    for name, function in reversed(shared.items()):
        app.command(name, cls=Command)(import_attribute(function, f"command {name!r}"))


_add_task_commands()


@recipes.callback()
def _list_recipes(context: typer.Context, json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from vcycle.cli.listing import recipe_table
    from vcycle.tasks.recipes import load_recipe, recipe_names

    described = {name: load_recipe(name).description for name in recipe_names()}
    if json:
        print_json({"recipes": described})
        return
    result(recipe_table(described))


@recipes.command("show", cls=Command)
def _show_recipe(recipe: RecipeArgument, json: Json = False) -> None:
    """Print a recipe's YAML, or as JSON with all defaults."""
    from vcycle.tasks.recipes import load_recipe, recipe_text

    if json:
        print_json({"name": recipe, "recipe": load_recipe(recipe).model_dump(mode="json", by_alias=True)})
    else:
        print(recipe_text(recipe)[0], end="")
