"""Implements `vcycle predict`, which classifies files with a trained model, and the options of `vcycle eval`."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

__all__ = ["eval_options", "predict"]

ViewsOption = Annotated[
    str | None,
    typer.Option("--views", metavar="KxJ", help="K clips of J crops each, such as 10x3; by default the recipe's."),
]


def eval_options(*, views: ViewsOption = None) -> list[str]:
    """Convert the options that `vcycle eval` has for recognition to overrides of the recipe.

    Raises:
        RecipeError: if `--views` is not clips x crops.
    """
    if views is None:
        return []
    found = re.fullmatch(r"(\d+)(?:[x×](\d+))?", views.strip())
    if found is None or 0 in (int(found[1]), int(found[2] or 1)):
        raise RecipeError(f"--views {views}: clips x crops, such as 1x1, 10x1 or 10x3, is accepted")
    return [f"evaluation.clips={found[1]}", f"evaluation.crops={found[2] or 1}"]


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder, or the output of `vcycle export`.")],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Videos of any length, or images; of any size."),
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print per file.")] = 5,
    views: ViewsOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Print the most likely classes of videos or images.

    An unreadable file is reported, the others are still predicted, and the exit code is 2.
    """
    from vcycle.data import Replacement, VideoDataset, VideoList
    from vcycle.tasks.base import tasks
    from vcycle.tasks.classification.eval_report import top_classes
    from vcycle.tasks.classification.evaluate import views_of
    from vcycle.tasks.classification.recipe import ClassificationRecipe
    from vcycle.tasks.classification.sampling import grids_of
    from vcycle.tasks.classification.task import ClassificationTask
    from vcycle.tasks.loaded_model import load_model
    from vcycle.tasks.recipes import override_trained
    from vcycle.train.ranks import Ranks
    from vcycle.train.threads import use_threads

    classifiers = [task.name for task in tasks.values() if isinstance(task, ClassificationTask)]
    loaded = load_model(model, message, accepted=classifiers)
    task = loaded.task
    recipe = override_trained(loaded.recipe, eval_options(views=views), str(model))
    assert isinstance(recipe, ClassificationRecipe)
    assert isinstance(task, ClassificationTask)
    taken = views_of(recipe)
    # At most one process per clip; but at least one, because a broken file may kill the process that reads it.
    workers = min(recipe.data.workers, len(files) * taken.clips)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"workers": workers})})
    listed = VideoList(
        root=Path(),
        paths=[os.fspath(file) for file in files],
        labels=[0] * len(files),
        classes=loaded.classes,
        source=model,
        frame_rate=task.frame_rate,
    )
    dataset = VideoDataset(listed, grids_of(recipe))
    device = Ranks().device(recipe.run.device, message)
    use_threads(recipe.run.threads, workers=workers, on_message=message)
    rows: list[dict[str, Any]] = []
    damaged: dict[str, str] = {}

    def on_fault(fault: str) -> None:
        message(fault)
        path, _, what = fault.removeprefix(f"damaged {task.item} ").rpartition(": ")
        damaged[path] = what

    evaluator = task.evaluator(recipe, dataset, loaded.classes, final=True)
    evaluator.on_fault = on_fault
    for found in evaluator.each(loaded.model.to(device), device):
        row: dict[str, Any] = {task.item: listed.paths[found.video]}
        if isinstance(found, Replacement):
            row["error"] = found.cause
            message(f"error: {row[task.item]}: {found.cause}")
        else:
            row["classes"] = top_classes(found.scores, loaded.classes, top)
            if not json:
                said = ", ".join(f"{name} {score:.1%}" for name, score in row["classes"].items())
                result(f"{row[task.item]}: {said}")
        what = damaged.get(str(row[task.item]))
        rows.append(row if what is None else row | {"damaged": what})
    if json:
        about = {"model": str(model), "weights": loaded.origin, "protocol": evaluator.protocol}
        print_json(about | {f"{task.item}s": rows})
    if any("error" in row for row in rows):
        raise typer.Exit(2)
