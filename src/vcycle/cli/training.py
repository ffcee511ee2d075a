"""`vcycle train`: one process or, started by torchrun, as many as share the work."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vcycle.cli import restoration
from vcycle.cli.carrying import carry_out
from vcycle.console.arguments import Json, Out, Overrides, RecipeArgument, load_any
from vcycle.console.distributed import shared
from vcycle.console.messages import accuracy_line, tell_of_videos
from vcycle.console.output import message, message_of_rank
from vcycle.console.progress import progress

if TYPE_CHECKING:
    from vcycle.console.progress import Progress
    from vcycle.tasks.recognition import Evaluation
    from vcycle.tasks.recognition.recipe import Recipe
    from vcycle.train import outcome
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder

__all__ = ["train"]


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
    from vcycle.runs.resume_guard import refuse_missing_run

    if resume:
        refuse_missing_run(recipe)
    loaded = load_any(recipe, overrides)

    from vcycle.tasks.plan_names import check_plan_names
    from vcycle.train.ranks import restarted
    from vcycle.train.run import RunFolder

    run = RunFolder(out or _default_folder(recipe, loaded.plan))
    resume = resume or restarted()
    with shared() as ranks:
        check_plan_names(loaded, [loaded.plan])  # before its data is looked for, or made
        if loaded.task == "superresolution":
            restoration.train(loaded, run, ranks, resume=resume, json=json)
        else:
            _train(loaded, run, ranks, resume=resume, json=json)


def _train(recipe: "Recipe", run: "RunFolder", ranks: "Ranks", *, resume: bool, json: bool) -> None:
    from vcycle.runs.resume_guard import enter
    from vcycle.tasks.recipes import dump_recipe
    from vcycle.tasks.recognition.build import check_plan, datasets_of
    from vcycle.tasks.recognition.build import train as train_recipe
    from vcycle.tasks.recognition.data import check_videos, find_videos
    from vcycle.tasks.recognition.plans import lengthened, plan_of

    text = dump_recipe(recipe)
    with progress() as shown, ranks.one_after_another():
        videos = find_videos(recipe, run.path.parent, shown.count)
    check_videos(recipe, videos)
    planned = plan_of(recipe, len(videos.train))
    check_plan(recipe, planned)

    def prepare() -> None:  # before hours of decoding
        if recipe.init.path is not None and not run.started:
            from vcycle.tasks.recognition.init_weights import check_init

            check_init(recipe, videos.train.classes)
        found = {"train": videos.train, "val": videos.val}
        enter(run, recipe, planned, found, text=text, resume=resume, classes=videos.train.classes)

    ranks.from_first(prepare)
    tell_of_videos(recipe, videos)
    if (longer := lengthened(recipe, len(videos.train))) is not None:
        message(longer)

    def train_videos(shown: "Progress", on_point: "Callable[[outcome.Point], None]") -> "outcome.Fitted":
        with ranks.one_after_another():
            splits = datasets_of(recipe, videos, run.path.parent, shown.count)
        shown.begin(planned.name, planned)
        return train_recipe(
            recipe,
            planned,
            splits,
            run,
            text=text,
            resume=resume,
            ranks=ranks,
            on_step=shown.step,
            on_point=on_point,
            on_message=message_of_rank,
            on_progress=shown.count,
        )

    def headline(found: "outcome.Evaluation") -> str:
        return accuracy_line(cast("Evaluation", found), "val", len(videos.train.classes))

    carry_out(recipe, planned, run, train_videos, headline, json=json)


def _default_folder(recipe: str, planned: str) -> Path:
    """A run goes on in its own folder; a recipe's run gets one by its name and plan."""
    from vcycle.train.run import RunFolder

    # A folder of videos may be called like a shipped recipe: it is no place for a run.
    if RunFolder(Path(recipe)).recipe.is_file():
        return Path(recipe)
    return Path("runs") / f"{Path(recipe).stem}-{planned.replace(':', '-')}"
