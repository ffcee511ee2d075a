"""`vcycle bench RECIPE`: what its plans would gain on this machine, before anything is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.console.arguments import Json, Overrides, RecipeArgument, load_any
from vcycle.console.figures import check_figure, save_figure
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import PlanError, RecipeError, VcycleError

if TYPE_CHECKING:
    from vcycle.console.progress import Progress
    from vcycle.plan import Plan
    from vcycle.tasks.recipes import AnyRecipe
    from vcycle.tasks.recognition.recipe import Recipe
    from vcycle.tasks.superres.recipe import SuperresRecipe

__all__ = ["bench_recipe"]

_ANY_CLIPS = 10_000
"""Length of a training set that is not known; what plans save does not depend on it."""
_ANY_CLASSES = 400


def bench_recipe(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    plans: Annotated[
        str | None, typer.Option("--plans", help="Which plans, by default all that the model can take.")
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Train on the recipe's own data rather than on noise in memory.")
    ] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Turns of each batch shape.")] = 5,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Of each turn; one step at least.")] = 1.0,
    precision: Annotated[
        str | None, typer.Option("--precision", help="Measure in each of these, such as fp32,bf16, side by side.")
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Measure plain and compiled, side by side.")] = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save it as a picture.")] = None,
    json: Json = False,
) -> None:
    """Time a training step at every batch shape of a recipe's plans, and predict what whole plans take.

    Clips are noise that lies in memory, unless --data is given. Nothing is kept but the picture.
    """
    from vcycle.tasks.plan_names import check_plan_names

    loaded = load_any(recipe, overrides)
    asked = None if plans is None else [name.strip() for name in plans.split(",")]
    check_plan_names(loaded, asked or [loaded.plan])
    in_every_way = precision is not None or compiled
    if figure is not None:
        if in_every_way:
            raise VcycleError("--figure draws one way of taking steps: leave out --precision and --compile")
        check_figure(figure)
    with TemporaryDirectory(prefix="vcycle-bench-") as temporary, progress() as shown:
        from vcycle.bench.saying import once
        from vcycle.bench.steps.study import Effort, bench_steps
        from vcycle.bench.steps.workload import workload_of

        found = _find(loaded, Path(temporary), shown, data=data)
        say = once(message)  # of several ways that are measured

        def measure(way: "AnyRecipe") -> dict[str, Any]:
            return bench_steps(
                workload_of(way, found.classes),
                _plans(way, found.clips, asked),
                effort=Effort(repeats=repeats, seconds=seconds),
                dataset=found.dataset,
                progress=lambda done, total: shown.count("timing steps", done, total),
                on_message=say,
            )

        if in_every_way:
            ways = _in_every_way(measure, recipe, overrides or [], precision, compiled=compiled)
            if json:
                print_json({"recipe": recipe, "ways": ways})
                return
            from vcycle.report.variants import variants_table

            result(variants_table(ways))
            return
        measured = measure(loaded)
    if figure is not None:
        from vcycle.report.steps import steps_figure

        save_figure(steps_figure(measured, recipe), figure)
    if json:
        print_json({"recipe": recipe} | measured)
        return
    from vcycle.report.steps import plans_table, shapes_table, steps_notes

    result(shapes_table(measured))
    result(plans_table(measured))
    for line in steps_notes(measured):
        result(line)


def _in_every_way(
    measure: "Callable[[AnyRecipe], dict[str, Any]]",
    recipe: str,
    overrides: Sequence[str],
    precision: str | None,
    *,
    compiled: bool,
) -> list[dict[str, Any]]:
    """What was measured in each precision, plain and compiled; what this machine cannot do is told, and left out.

    Raises:
        VcycleError: if it can do none of it.
    """
    ways, refused = [], None
    for name in (None,) if precision is None else precision.split(","):
        for switch in (False, True) if compiled else (None,):
            more = [] if name is None else [f"run.precision={name.strip()}"]
            more += [] if switch is None else [f"run.compile={str(switch).lower()}"]
            try:
                ways.append(measure(load_any(recipe, [*overrides, *more])))
            except VcycleError as error:
                if isinstance(error, RecipeError):
                    raise
                refused = error
                message(f"left out: {error}")
    if not ways and refused is not None:
        raise refused
    return ways


@dataclass(frozen=True)
class _Data:
    """What is known of a recipe's training set."""

    clips: int
    classes: int
    dataset: Any = None
    """The set itself, where it is to be loaded."""


def _find(recipe: "AnyRecipe", work: Path, shown: "Progress", *, data: bool) -> _Data:
    from vcycle.tasks.recognition.recipe import Recipe

    if isinstance(recipe, Recipe):
        return _find_videos(recipe, work, shown, data=data)
    return _find_clips(recipe, data=data)


def _find_videos(recipe: "Recipe", work: Path, shown: "Progress", *, data: bool) -> _Data:
    from vcycle.tasks.recognition.build import dataset_of
    from vcycle.tasks.recognition.data import check_videos, find_videos

    digits = recipe.data.digits
    if not data and digits is not None:
        return _Data(digits.train_clips, len(digits.digits) * len(digits.motions))
    if not data and recipe.data.path is None:
        return _Data(recipe.data.clips or _assumed("data=FOLDER or data.clips=N"), _ANY_CLASSES)
    videos = find_videos(recipe, work, shown.count)
    classes = len(videos.train.classes)
    if not data:
        return _Data(len(videos.train), classes)
    check_videos(recipe, videos)
    return _Data(len(videos.train), classes, dataset_of(recipe, videos.train, "train", work, shown.count))


def _find_clips(recipe: "SuperresRecipe", *, data: bool) -> _Data:
    from vcycle.tasks.superres.build import dataset_of
    from vcycle.tasks.superres.data import split_of

    if not data and recipe.data.path is None:
        return _Data(recipe.data.epoch or _assumed("data=FOLDER or data.epoch=N"), 0)
    clips = split_of(recipe, "train")
    return _Data(len(clips), 0, dataset_of(recipe, clips) if data else None)


def _assumed(remedy: str) -> int:
    message(f"whole plans are predicted for {_ANY_CLIPS:,} clips: {remedy} gives yours")
    return _ANY_CLIPS


def _plans(recipe: "AnyRecipe", clips: int, asked: Sequence[str] | None) -> "dict[str, Plan]":
    """The plans by name, the constant shape first, and each plan's control.

    Those that nobody named and that cannot be are left out.
    """
    from vcycle.tasks.recognition.plans import control_name

    known, plan_of = _planner(recipe)
    names = dict.fromkeys(["constant", *(known if asked is None else asked)])
    if asked is None:
        names[recipe.plan] = None
    chosen = {}
    for name in names:
        try:
            planned = plan_of(clips, name)
        except (PlanError, RecipeError) as error:
            if asked is not None or name in ("constant", recipe.plan):
                raise
            message(f"left out: {error}")
            continue
        chosen[name] = planned
        if asked is None and set(planned.shapes) != {planned.baseline_shape} and not name.startswith("control:"):
            chosen[control_name(name)] = plan_of(clips, control_name(name))
    return chosen


def _planner(recipe: "AnyRecipe") -> "tuple[Sequence[str], Callable[[int, str], Plan]]":
    """The plans' names, and what makes a plan that the recipe's model can take."""
    from vcycle.tasks.recognition.recipe import Recipe

    if isinstance(recipe, Recipe):
        from vcycle.tasks.recognition import build, plans

        def recognition(clips: int, name: str) -> "Plan":
            planned = plans.plan_of(recipe, clips, name)
            build.check_plan(recipe, planned)
            return planned

        return plans.PLAN_NAMES, recognition
    from vcycle.tasks.superres import plans as restoration

    def superresolution(clips: int, name: str) -> "Plan":
        planned = restoration.plan_of(recipe, clips, name)
        restoration.check_plan(recipe, planned)
        return planned

    return (*restoration.PLAN_NAMES, "hierarchical+scaled"), superresolution
