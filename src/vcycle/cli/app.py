"""The commands. Those that only plan import no torch, so that they answer at once."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vcycle.cli import (
    benching,
    evaluating,
    exporting,
    predicting,
    preparing,
    process,
    reporting,
    restoration,
    upscaling,
)
from vcycle.cli.arguments import Json, Overrides, RecipeArgument, load, load_any
from vcycle.cli.output import message, plan_data, print_json, result
from vcycle.cli.progress import progress
from vcycle.cli.telling import accuracy_line, plan_line, totals_line, training_data, warn_of_workers

if TYPE_CHECKING:
    from vcycle.recipes.build import Videos
    from vcycle.recipes.schema import Recipe
    from vcycle.tasks.recognition import Evaluation

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

Out = Annotated[Path | None, typer.Option("--out", help="Folder for everything that is written.")]


def main() -> None:
    """The `vcycle` command."""
    sys.exit(process.run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        from vcycle import __version__

        result(f"vcycle {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # Both are dealt with before: `--debug` by `process.run`, so that it may stand behind the command.
    del debug, version


@app.command()
def plan(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    json: Json = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save shapes, batch and LR as a picture.")] = None,
) -> None:
    """Show the plan of a recipe: stages, shapes, LR, savings."""
    from vcycle.cli.figures import save_figure
    from vcycle.recipes.build import check_plan, find_videos
    from vcycle.recipes.plans import lengthened, plan_of

    loaded = load_any(recipe, overrides)
    if loaded.task == "superresolution":
        restoration.plan(loaded, figure=figure, json=json)
        return
    clips = loaded.data.clips  # None, and no videos: `plan_of` says what is missing
    if loaded.data.digits is not None:
        clips = loaded.data.digits.train_clips
    elif loaded.data.path is not None:
        videos = find_videos(loaded, Path())
        clips = len(videos.train)
        _tell_of_videos(loaded, videos)
    planned = plan_of(loaded, clips)
    check_plan(loaded, planned)
    if (longer := lengthened(loaded, clips)) is not None:
        message(longer)
    if figure is not None:
        save_figure(planned.figure(), figure)
    if json:
        print_json(plan_data(planned))
    else:
        result(planned.table())


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in the run's folder.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a recipe on a folder of videos or, for super-resolution, of clips.

    The run is kept in --out, by default runs/RECIPE-PLAN: recipe, plan, log and checkpoints.
    `vcycle train RUN --resume` goes on with it.
    """
    from vcycle.recipes.build import check_plan, check_videos, datasets_of, find_videos
    from vcycle.recipes.build import train as train_recipe
    from vcycle.recipes.load import dump_recipe
    from vcycle.recipes.plans import lengthened, plan_of
    from vcycle.recipes.resuming import check_resume, refuse_missing_run
    from vcycle.train.run import RunFolder

    if resume:
        refuse_missing_run(recipe)
    loaded = load_any(recipe, overrides)
    run = RunFolder(out or _default_folder(recipe, loaded.plan))
    if loaded.task == "superresolution":
        restoration.train(loaded, run.path, resume=resume, json=json)
        return
    text = dump_recipe(loaded)
    with progress() as shown:
        videos = find_videos(loaded, run.path.parent, shown.count)
    check_videos(loaded, videos)
    planned = plan_of(loaded, len(videos.train))
    check_plan(loaded, planned)
    if loaded.init.path is not None and not run.started:
        from vcycle.recipes.initial import check_init

        check_init(loaded, videos.train.classes)
    if run.prepare(planned, text, resume=resume, classes=videos.train.classes):  # before hours of decoding
        check_resume(run, loaded, planned, {"train": videos.train, "val": videos.val})
    _tell_of_videos(loaded, videos)
    if (longer := lengthened(loaded, len(videos.train))) is not None:
        message(longer)
    if not json:
        result(planned.table())
    go_on = f"vcycle train {shlex.quote(str(run.path))} --resume"
    message(f"run: {run.path}; after an interruption, go on with `{go_on}`")
    warn_of_workers(loaded)
    with process.resumable(f"go on with `{go_on}`"), progress() as shown:
        splits = datasets_of(loaded, videos, run.path.parent, shown.count)
        shown.begin(planned.name, planned)
        fitted = train_recipe(
            loaded,
            planned,
            splits,
            run,
            text=text,
            resume=resume,
            on_step=shown.step,
            on_point=lambda point: message(plan_line(planned, point)),
            on_message=message,
        )
    if json:
        print_json(training_data(run.path, planned, fitted))
        return
    found = cast("Evaluation", fitted.curve[-1].evaluation)
    result(accuracy_line(found, "val", len(videos.train.classes)))
    result(totals_line(fitted))


@app.command()
def compare(recipe: RecipeArgument, overrides: Overrides = None, out: Out = None, json: Json = False) -> None:
    """Train several plans over shared seeds, and compare them.

    `vcycle compare RECIPE plan=constant,long+short,cascade seeds=5`; each plan's LR-matched control is trained too,
    unless controls are named. A study that was cut short goes on.
    """
    from vcycle.cli.studies import plan_names, seed_range, study

    chosen = {"plan": "constant,long+short,cascade", "seeds": "2"}
    rest = []
    for override in overrides or ():
        key, equals, value = override.partition("=")
        if equals and key in chosen:
            chosen[key] = value
        else:
            rest.append(override)
    plans, seeds = plan_names(chosen["plan"]), seed_range(chosen["seeds"])
    folder = out or Path("runs") / f"compare-{Path(recipe).stem}"
    loaded = load(recipe, rest)
    warn_of_workers(loaded)
    study(loaded, plans, seeds, folder, title=recipe, json=json)


@app.command()
def demo(
    out: Out = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per plan.")] = 2,
    json: Json = False,
) -> None:
    """Compare four plans on small videos made here, in minutes.

    It needs no network, and shows what multigrid training gains there.
    """
    from vcycle.cli.studies import DEMO_PLANS, demo_data, study
    from vcycle.recipes import load

    recipe = load.load_recipe("demo/digits")
    folder = out or Path("vcycle-demo")
    title = "vcycle demo: digits in motion"
    study(recipe, DEMO_PLANS, range(seeds), folder, title=title, json=json, as_data=demo_data)


app.command("eval")(evaluating.evaluate)
app.command()(predicting.predict)
app.command()(preparing.prepare)
app.command()(preparing.check)
app.command()(exporting.export)
app.command()(upscaling.upscale)
app.command()(reporting.report)


@recipes.callback()
def _list_recipes(context: typer.Context, json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from vcycle.cli.listing import recipe_table
    from vcycle.recipes.load import load_any, recipe_names

    described = {name: load_any(name).description for name in recipe_names()}
    if json:
        print_json({"recipes": described})
        return
    result(recipe_table(described))


@recipes.command("show")
def _show_recipe(recipe: RecipeArgument, json: Json = False) -> None:
    """Print a recipe as it is written, or with --json as it is understood, defaults filled in."""
    from vcycle.recipes.load import load_any, recipe_text

    if json:
        print_json({"name": recipe, "recipe": load_any(recipe).model_dump(mode="json", by_alias=True)})
    else:
        print(recipe_text(recipe)[0], end="")


def _default_folder(recipe: str, planned: str) -> Path:
    """A run goes on in its own folder; a recipe's run gets one by its name and plan."""
    from vcycle.train.run import RunFolder

    # A folder of videos may be called like a shipped recipe: it is no place for a run.
    if RunFolder(Path(recipe)).recipe.is_file():
        return Path(recipe)
    return Path("runs") / f"{Path(recipe).stem}-{planned.replace(':', '-')}"


def _tell_of_videos(recipe: "Recipe", videos: "Videos") -> None:
    from vcycle.recipes.notices import notices

    classes = len(videos.train.classes)
    message(f"{len(videos.train):,} videos in {classes} classes, and {len(videos.val):,} more for validation")
    for note in notices(recipe, videos):
        message(note)
