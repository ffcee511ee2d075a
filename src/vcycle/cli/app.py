"""The commands. Those that only plan import no torch, so that they answer at once."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.cli import (
    benching,
    checking,
    comparing,
    demonstrating,
    evaluating,
    exporting,
    preparing,
    reporting,
    restoration,
    training,
)
from vcycle.console import process
from vcycle.console.arguments import Json, Overrides, RecipeArgument, load_any
from vcycle.console.messages import tell_of_videos
from vcycle.console.output import message, plan_data, print_json, result
from vcycle.errors import RecipeError
from vcycle.tasks.recognition.commands import predict
from vcycle.tasks.superres.commands import upscale

if TYPE_CHECKING:
    from vcycle.plan import Plan
    from vcycle.tasks.recognition.recipe import Recipe

__all__ = ["app", "main"]

app = typer.Typer(
    name="vcycle",
    help="Train video models on a schedule of coarse-to-fine sampling grids: few frames and small pictures in large "
    "batches first, the full clip last. What that saves depends on the data; `vcycle compare` measures it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in which a switch has no type
    context_settings={"help_option_names": ["-h", "--help"]},
)
recipes = typer.Typer(help="List the shipped recipes, or show one.", invoke_without_command=True)
app.add_typer(recipes, name="recipes")
app.add_typer(benching.bench, name="bench")


def main() -> None:
    """The `vcycle` command."""
    sys.exit(process.run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        from vcycle import __version__

        result(f"vcycle {__version__}")
        raise typer.Exit


_SHARED = ("train", "eval")
"""Commands whose work several processes share."""


@app.callback()
def _root(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # Both are dealt with before: `--debug` by `process.run`, so that it may stand behind the command.
    del debug, version
    world = os.environ.get("WORLD_SIZE", "1")
    if world != "1" and context.invoked_subcommand not in _SHARED:
        raise RecipeError(
            f"vcycle {context.invoked_subcommand} is the work of one process, and torchrun has started {world} "
            f"(WORLD_SIZE): {' and '.join(_SHARED)} share it among several"
        )


@app.command()
def plan(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    json: Json = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save shapes, batch and LR as a picture.")] = None,
) -> None:
    """Show the plan of a recipe: stages, shapes, LR, savings."""
    from vcycle.console.figures import save_figure
    from vcycle.tasks.plan_names import check_plan_names

    loaded = load_any(recipe, overrides)
    check_plan_names(loaded, [loaded.plan])
    planned = restoration.planned(loaded) if loaded.task == "superresolution" else _planned(loaded)
    if figure is not None:
        save_figure(planned.figure(), figure)
    if json:
        print_json(plan_data(planned))
    else:
        result(planned.table())


def _planned(recipe: "Recipe") -> "Plan":
    """The plan of a recipe of recognition, for the videos that it names."""
    from vcycle.tasks.recognition.build import check_plan
    from vcycle.tasks.recognition.data import find_videos
    from vcycle.tasks.recognition.plans import lengthened, plan_of

    clips = recipe.data.clips  # None, and no videos: `plan_of` says what is missing
    if recipe.data.digits is not None:
        clips = recipe.data.digits.train_clips
    elif recipe.data.path is not None:
        videos = find_videos(recipe, Path())
        clips = len(videos.train)
        tell_of_videos(recipe, videos)
    planned = plan_of(recipe, clips)
    check_plan(recipe, planned)
    if (longer := lengthened(recipe, clips)) is not None:
        message(longer)
    return planned


app.command()(training.train)
app.command()(comparing.compare)
app.command()(demonstrating.demo)
app.command("eval")(evaluating.evaluate)
app.command()(predict)
app.command()(preparing.prepare)
app.command()(checking.check)
app.command()(exporting.export)
app.command()(upscale)
app.command()(reporting.report)


@recipes.callback()
def _list_recipes(context: typer.Context, json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from vcycle.cli.listing import recipe_table
    from vcycle.tasks.recipes import load_any, recipe_names

    described = {name: load_any(name).description for name in recipe_names()}
    if json:
        print_json({"recipes": described})
        return
    result(recipe_table(described))


@recipes.command("show")
def _show_recipe(recipe: RecipeArgument, json: Json = False) -> None:
    """Print a recipe as it is written, or with --json as it is understood, defaults filled in."""
    from vcycle.tasks.recipes import load_any, recipe_text

    if json:
        print_json({"name": recipe, "recipe": load_any(recipe).model_dump(mode="json", by_alias=True)})
    else:
        print(recipe_text(recipe)[0], end="")
