"""The tasks by name, and what users add to them."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from vcycle.data.layouts.layout import AUTO, Layout
from vcycle.errors import RecipeError
from vcycle.plan import Baseline, Plan
from vcycle.registry import Registry
from vcycle.section import Section
from vcycle.tasks.base.evaluation import Measure
from vcycle.tasks.base.task import Task
from vcycle.tasks.plans import PlanSpec

__all__ = ["measures", "register_layout", "register_plan", "register_task", "tasks"]

C = TypeVar("C", bound=Callable[..., Any])

tasks: Registry[Task[Any, Any]] = Registry("task", "vcycle.tasks")
"""All tasks by name."""
tasks.register_lazily("recognition", "vcycle.tasks.recognition.task:RECOGNITION")
tasks.register_lazily("superresolution", "vcycle.tasks.superres.task:SUPERRESOLUTION")
tasks.register_lazily("images", "vcycle.tasks.images.task:IMAGES")


def register_task(task: Task[Any, Any]) -> Task[Any, Any]:
    """Add a task under its name.

    Raises:
        RecipeError: if the name is taken.
    """
    return tasks.register(task.name, task)


def register_plan(
    name: str, *, task: str = "recognition", options: type[Section] | None = None
) -> Callable[[Callable[[Any, Baseline, Any, float | None], Plan]], Callable[..., Plan]]:
    """Register a plan for a task; a decorator of the function that builds it.

    The function is called with the recipe, its baseline, the options, and the length from the plan's name (`NAME@2`,
    in lengths of the baseline; None without `@`). Recipes choose it with `plan: NAME`, and set its options under
    `plans.NAME`; `control:NAME` is its LR-matched control.

    Args:
        name: Name of the plan.
        task: Name of the task.
        options: The schema of its options.

    Raises:
        RecipeError: if the name is taken.
    """

    def register(build: Callable[[Any, Baseline, Any, float | None], Plan]) -> Callable[..., Plan]:
        tasks[task].plans.register(name, PlanSpec(build=build, section=name, options=options))
        return build

    return register


def register_layout(
    name: str,
    *,
    task: str = "recognition",
    splits: Callable[..., Iterable[str]] | Collection[str] = ("train", "val"),
    folds: int = 0,
    incomplete: bool = False,
) -> Callable[[C], C]:
    """Register a dataset layout for a task; a decorator of the function that reads a split of a folder.

    The function is called with the folder (a `Path`) and the split's name, and with those of the recipe's options that
    it takes by name. Recognition: `videos` (`data.root`), `fold`, `val_fraction`, and `check_files` (whether to look
    for each listed file); it returns a `vcycle.data.VideoList`. Super-resolution: `low` (`data.low`) and `degradation`;
    it returns `vcycle.tasks.superres.ClipPairs`. Recipes choose the layout with `data.layout: NAME`.

    Args:
        name: Name of the layout.
        task: Name of the task.
        splits: A function that returns the splits of a folder (`train`, `val`, `test`), none if the folder has another
            layout; `data.layout=auto` detects the layout with it. Or the splits that every folder has: such a layout
            is never detected.
        folds: Number of official folds.
        incomplete: Whether listed videos may have no file, and are left out.

    Raises:
        RecipeError: if the name is taken, or the task has no layouts.
    """

    def register(read: C) -> C:
        layouts = tasks[task].layouts
        if layouts is None:
            raise RecipeError(f"layout {name!r}: task {task} has no layouts")
        if name == AUTO:
            raise RecipeError(f"layout {name!r} stands for the layout that is recognised: choose another name")
        layouts.register(name, Layout(read=read, splits=splits, folds=folds, incomplete=incomplete))
        return read

    return register


def measures() -> dict[str, Measure]:
    """The metrics of all tasks, by name."""
    found: dict[str, Measure] = {}
    for task in tasks.values():
        for measure in task.measures:
            found.setdefault(measure.name, measure)  # tasks that share a measure differ in what its samples are called
    return found
