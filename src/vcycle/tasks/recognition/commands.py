"""`vcycle predict`: what a trained model sees in any videos."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from vcycle.cli.evaluating import ViewsOption, changed, views_as_changes
from vcycle.cli.restoration import is_restoration
from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or what `vcycle export` wrote.")],
    videos: Annotated[list[Path], typer.Argument(metavar="VIDEO...", help="Video files, of any length and size.")],
    top: Annotated[int, typer.Option(min=1, help="Classes to print for each.")] = 5,
    views: ViewsOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Print the most likely classes of videos.

    A file that cannot be read is told in a line and the others go on; the exit code is then 2.
    """
    from vcycle.data import Replacement, VideoDataset, VideoList
    from vcycle.tasks.recognition.build import grids_of
    from vcycle.tasks.recognition.eval_report import top_classes
    from vcycle.tasks.recognition.evaluate import open_trained, protocol_of, scored, views_of
    from vcycle.train.ranks import Ranks

    if is_restoration(model):
        raise RecipeError(
            f"{model} is one of super-resolution, which sees no classes: `vcycle upscale` restores a video"
        )
    opened = open_trained(model, message)
    recipe = changed(opened.recipe, views_as_changes(views), str(model))
    taken = views_of(recipe)
    # No more processes than there are clips; but one even for a single file, which may kill the one that reads it.
    workers = min(recipe.data.workers, len(videos) * taken.clips)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"workers": workers})})
    listed = VideoList(
        root=Path(),
        paths=[os.fspath(video) for video in videos],
        labels=[0] * len(videos),
        classes=opened.classes,
        source=model,
    )
    dataset = VideoDataset(listed, grids_of(recipe))
    device = Ranks().device(recipe.run.device, message)
    rows: list[dict[str, Any]] = []
    for found in scored(recipe, dataset, opened.model.to(device), taken, device):
        row: dict[str, Any] = {"video": listed.paths[found.video]}
        if isinstance(found, Replacement):
            row["error"] = found.cause
            message(f"error: {row['video']}: {found.cause}")
        else:
            row["classes"] = top_classes(found.scores, opened.classes, top)
            if not json:
                said = ", ".join(f"{name} {score:.1%}" for name, score in row["classes"].items())
                result(f"{row['video']}: {said}")
        rows.append(row)
    if json:
        protocol = protocol_of(recipe, len(opened.classes), taken)
        print_json({"model": str(model), "weights": opened.origin, "protocol": protocol, "videos": rows})
    if any("error" in row for row in rows):
        raise typer.Exit(2)
