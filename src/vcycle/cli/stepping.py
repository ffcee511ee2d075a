"""`vcycle bench RECIPE`: times training steps and predicts the training time of whole plans."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.console.arguments import Json, Overrides, RecipeArgument
from vcycle.console.figures import check_figure, save_figure
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import PlanError, RecipeError, VcycleError

if TYPE_CHECKING:
    from vcycle.config.recipe import RecipeBase
    from vcycle.console.progress import Progress
    from vcycle.plan import Plan

__all__ = ["bench_recipe"]

_ANY_CLIPS = 10_000
"""Assumed length of an unknown training set; the predicted speed-up does not depend on it."""


def bench_recipe(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    plans: Annotated[
        str | None, typer.Option("--plans", help="Plans to predict, by default all that the model supports.")
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Train on the recipe's data rather than on noise in memory.")
    ] = False,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Repeats of each batch shape.")] = 5,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Seconds per repeat; at least one step.")] = 1.0,
    precision: Annotated[
        str | None, typer.Option("--precision", help="Compare precisions side by side, such as fp32,bf16.")
    ] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Compare eager and compiled side by side.")] = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save the results as a figure.")] = None,
    json: Json = False,
) -> None:
    """Time a training step at every batch shape of a recipe.

    The times predict the training time of whole plans. Clips are random noise in memory unless you pass
    --data. Only the figure is saved.
    """
    from vcycle.tasks.base import tasks
    from vcycle.tasks.plans import check_names
    from vcycle.tasks.recipes import load_given

    loaded = load_given(recipe, overrides)
    asked = None if plans is None else [name.strip() for name in plans.split(",")]
    check_names(tasks[loaded.task].plans, asked or [loaded.plan])
    in_every_way = precision is not None or compiled
    if figure is not None:
        if in_every_way:
            raise VcycleError("--figure cannot be combined with --precision or --compile: it draws a single setting")
        check_figure(figure)
    with TemporaryDirectory(prefix="vcycle-bench-") as temporary, progress() as shown:
        from vcycle.bench.steps.study import bench_steps
        from vcycle.bench.steps.turns import Effort
        from vcycle.bench.steps.workload import workload_of
        from vcycle.bench.warn_once import warn_once
        from vcycle.runs.train import probe_plans

        found = _find(loaded, Path(temporary), shown, data=data)
        say = warn_once(message)  # each message once for all settings

        def measure(way: "RecipeBase") -> dict[str, Any]:
            planned = _plans(way, found.clips, asked)
            probe_plans(way, found.classes, planned.values())
            return bench_steps(
                workload_of(way, found.classes),
                planned,
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
    measure: "Callable[[RecipeBase], dict[str, Any]]",
    recipe: str,
    overrides: Sequence[str],
    precision: str | None,
    *,
    compiled: bool,
) -> list[dict[str, Any]]:
    """Measure each precision, eager and compiled. Settings that this machine does not support are reported and skipped.

    Raises:
        VcycleError: if it supports none of them.
    """
    from vcycle.tasks.recipes import load_given

    ways, refused = [], None
    for name in (None,) if precision is None else precision.split(","):
        for switch in (False, True) if compiled else (None,):
            more = [] if name is None else [f"run.precision={name.strip()}"]
            more += [] if switch is None else [f"run.compile={str(switch).lower()}"]
            try:
                ways.append(measure(load_given(recipe, [*overrides, *more])))
            except VcycleError as error:
                if isinstance(error, RecipeError):
                    raise
                refused = error
                message(f"skipped: {error}")
    if not ways and refused is not None:
        raise refused
    return ways


@dataclass(frozen=True)
class _Data:
    """A recipe's training set."""

    clips: int
    classes: int
    dataset: Any = None
    """The dataset, if steps load from it."""


def _find(recipe: "RecipeBase", work: Path, shown: "Progress", *, data: bool) -> _Data:
    from vcycle.runs.experiment import Experiment
    from vcycle.tasks.base import tasks

    task = tasks[recipe.task]
    if not data and recipe.data.path is None:
        return _Data(task.length(recipe) or _assumed(), task.outputs(recipe))
    experiment = Experiment(recipe, work, on_progress=shown.count)
    if data:
        experiment.check(experiment.plan("constant"), fresh=True)
    clips, classes = len(experiment.splits.train), len(experiment.classes)
    return _Data(clips, classes, experiment.dataset("train") if data else None)


def _assumed() -> int:
    message(f"predicting whole plans for {_ANY_CLIPS:,} samples: set data=FOLDER, or the recipe's length of the data")
    return _ANY_CLIPS


def _plans(recipe: "RecipeBase", clips: int, asked: Sequence[str] | None) -> "dict[str, Plan]":
    """The plans by name, the constant shape first, and each plan's control.

    Default plans that cannot be built are skipped.
    """
    from vcycle.tasks.base import tasks
    from vcycle.tasks.plans import control_name

    task = tasks[recipe.task]

    def plan_of(name: str) -> "Plan":
        planned = task.plan(recipe, clips, name)
        task.check_plan(recipe, planned)
        return planned

    names = dict.fromkeys(["constant", *(task.plans if asked is None else asked)])
    if asked is None:
        names[recipe.plan] = None
    chosen = {}
    for name in names:
        try:
            planned = plan_of(name)
        except (PlanError, RecipeError) as error:
            if asked is not None or name in ("constant", recipe.plan):
                raise
            message(f"skipped: {error}")
            continue
        chosen[name] = planned
        if asked is None and set(planned.shapes) != {planned.baseline_shape} and not name.startswith("control:"):
            chosen[control_name(name)] = plan_of(control_name(name))
    return chosen
