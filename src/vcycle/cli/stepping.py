"""`vcycle bench step`: what a plan would gain on this machine, before anything is trained."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.cli.arguments import Json, Overrides, RecipeArgument, load
from vcycle.cli.figures import save_figure
from vcycle.cli.output import message, print_json, result
from vcycle.cli.progress import progress
from vcycle.errors import PlanError, RecipeError

if TYPE_CHECKING:
    from vcycle.plan import BatchShape, Plan
    from vcycle.recipes.schema import Recipe

__all__ = ["bench_step"]

_ANY_CLIPS = 10_000
"""Length of a training set that is not known: what plans save does not depend on it."""
_ANY_CLASSES = 400


def bench_step(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    plans: Annotated[
        str | None, typer.Option("--plans", help="Which plans, by default all that the model can take.")
    ] = None,
    data: Annotated[bool, typer.Option("--data", help="Count what loading the recipe's videos takes, too.")] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Turns of each batch shape.")] = 5,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Of each turn; one step at least.")] = 1.0,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save it as a picture.")] = None,
    json: Json = False,
) -> None:
    """Time a training step at every batch shape of a recipe's plans, and predict what whole plans take.

    Clips are noise that lies in memory, unless --data is given. Nothing is written.
    """
    from vcycle.recipes.build import datasets_of, find_videos

    loaded = load(recipe, overrides)
    with TemporaryDirectory(prefix="vcycle-bench-") as temporary, progress() as shown:
        clips, classes = loaded.data.clips or _ANY_CLIPS, _ANY_CLASSES
        data_seconds = None
        if data or loaded.data.path is not None:
            videos = find_videos(loaded, Path(temporary), shown.count)
            clips, classes = len(videos.train), len(videos.train.classes)
            if data:
                splits = datasets_of(loaded, videos, Path(temporary), shown.count)
                data_seconds = _loading(loaded, splits.train)
        elif loaded.data.digits is not None:
            digits = loaded.data.digits
            clips, classes = digits.train_clips, len(digits.digits) * len(digits.motions)
        elif loaded.data.clips is None:
            message(f"whole plans are predicted for {clips:,} videos: data=FOLDER or data.clips=N gives yours")
        chosen = _plans(loaded, clips, plans)

        from vcycle.bench.steps.study import Effort
        from vcycle.bench.steps.study import bench_steps as measure

        found = measure(
            loaded,
            chosen,
            classes=classes,
            effort=Effort(repeats=repeats, seconds=seconds),
            data_seconds=data_seconds,
            progress=lambda done, total: shown.count("timing steps", done, total),
        )
    if figure is not None:
        from vcycle.report.steps import steps_figure

        save_figure(steps_figure(found, recipe), figure)
    if json:
        print_json({"recipe": recipe} | found)
        return
    from vcycle.report.steps import plans_table, shapes_table, steps_notes

    result(shapes_table(found))
    result(plans_table(found))
    for line in steps_notes(found):
        result(line)


def _plans(recipe: "Recipe", clips: int, asked: str | None) -> "dict[str, Plan]":
    """The plans by name, the constant shape first; those that nobody named and that cannot be are left out."""
    from vcycle.recipes.build import check_plan
    from vcycle.recipes.plans import PLAN_NAMES, plan_of

    names = dict.fromkeys(["constant", *(PLAN_NAMES if asked is None else (name.strip() for name in asked.split(",")))])
    if asked is None:
        names[recipe.plan] = None
    chosen = {}
    for name in names:
        try:
            planned = plan_of(recipe, clips, name)
            check_plan(recipe, planned)
        except (PlanError, RecipeError) as error:
            if asked is not None or name in ("constant", recipe.plan):
                raise
            message(f"left out: {error}")
            continue
        chosen[name] = planned
    return chosen


def _loading(recipe: "Recipe", dataset: object) -> "Callable[[BatchShape], float]":
    """Seconds that the loader takes for a batch, when nothing else runs."""

    def seconds(shape: "BatchShape") -> float:
        from vcycle.bench.steps.loading import batch_seconds

        return batch_seconds(
            dataset, shape, workers=recipe.data.workers, timeout=recipe.data.timeout, prefetch=recipe.data.prefetch
        )

    return seconds
