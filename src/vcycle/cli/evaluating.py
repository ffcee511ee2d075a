"""`vcycle eval`: how good a trained model is, on any number of ranks."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

import typer

from vcycle.cli import restoration
from vcycle.cli.restoration import is_restoration
from vcycle.console.arguments import Raw, names_recipe, refuse_raw
from vcycle.console.distributed import shared
from vcycle.console.figures import check_figure, save_figure
from vcycle.console.messages import accuracy_line, warn_of_precision, warn_of_workers
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.data import VideoDataset, Views
    from vcycle.runs.loaded_model import Opened
    from vcycle.tasks.recognition import Scores
    from vcycle.tasks.recognition.recipe import Recipe
    from vcycle.tasks.superres.recipe import SuperresRecipe
    from vcycle.train.ranks import Ranks

__all__ = ["ViewsOption", "changed", "evaluate", "result_file", "views_as_changes"]

_Recipe = TypeVar("_Recipe", "Recipe", "SuperresRecipe")

_CHANGEABLE = ("evaluation", "data", "run")
"""Sections of a trained model's recipe that may be changed for an evaluation; the others decide what was trained."""

ViewsOption = Annotated[
    str | None,
    typer.Option(
        "--views", metavar="KxJ", help="K clips of J crops each, such as 10x3; by default what the recipe says."
    ),
]


def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="The folder of a run, one of its checkpoints, what `vcycle export` wrote, or a recipe with init=FILE.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes, such as evaluation.size=256 or data.workers=8."),
    ] = None,
    split: Annotated[str, typer.Option(help="val, test or train.")] = "val",
    views: ViewsOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the results; by default the run's.")
    ] = None,
    raw: Raw = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Save who is taken for whom as a picture.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Evaluate a trained model at the full grid.

    Accuracy and its protocol are printed; each class and each video are written to eval-SPLIT-VIEWS.json in the run's
    folder. Of super-resolution it is PSNR and SSIM of whole clips, and eval-SPLIT.json.
    `torchrun --standalone --nproc-per-node N -m vcycle eval MODEL` shares the videos among N processes, with the same
    result.
    """
    if is_restoration(model):
        if views is not None or figure is not None:
            raise RecipeError(f"{model} is one of super-resolution: --views and --figure go with recognition")
        restoration.evaluate(model, overrides or (), split, raw=raw, out=out, json=json)
        return
    if figure is not None:
        check_figure(figure)  # before what may take hours
    with shared() as ranks:
        changes = [*(overrides or ()), *views_as_changes(views)]
        found = _evaluate(model, changes, split, ranks, raw=raw, pictured=figure is not None)
        if found is None:
            return
        file = result_file(model, f"eval-{split}-{found.views.clips}x{found.views.crops}", out, raw=raw)
        _tell(found, model, split, file, figure, json)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What the first rank has in the end."""

    opened: "Opened"
    dataset: "VideoDataset"
    views: "Views"
    protocol: str
    scores: "Scores"


def _evaluate(
    name: Path, overrides: Sequence[str], split: str, ranks: "Ranks", *, raw: bool, pictured: bool
) -> _Found | None:
    """Score this rank's share, and all of them on the first rank."""
    from vcycle.runs.loaded_model import run_of
    from vcycle.tasks.recipes import load_recipe, with_absolute_paths
    from vcycle.tasks.recognition import Scores
    from vcycle.tasks.recognition.evaluate import (
        check_classes,
        check_initial,
        open_initial,
        open_trained,
        protocol_of,
        scored,
        split_of,
        views_of,
    )

    opened = None
    if names_recipe(name):
        refuse_raw(name, raw)
        recipe = with_absolute_paths(load_recipe(str(name), overrides))
        check_initial(recipe)
    else:
        opened = open_trained(name, message, raw=raw)
        recipe = changed(opened.recipe, overrides, str(name))
    if pictured and recipe.training.multi_label:
        raise RecipeError("--figure: a confusion matrix needs one class a video, and these may have several")
    views = views_of(recipe)
    work = _folder(name).parent if names_recipe(name) else (run_of(name) or name).parent
    if ranks.first:
        warn_of_workers(recipe)
        # Alone, so that a cache is built once; the others then find it.
        with progress() as shown:
            dataset = split_of(recipe, split, work, shown.count)
    ranks.wait()
    if not ranks.first:
        dataset = split_of(recipe, split, work)
    if opened is None:
        opened = open_initial(recipe, dataset.videos.classes, message)
    check_classes(dataset, opened.classes, str(name))
    device = ranks.device(recipe.run.device, message)
    warn_of_precision(recipe, device)
    model = opened.model.to(device)
    with progress() as shown:
        tell = partial(shown.count, "evaluating videos")
        own = list(scored(recipe, dataset, model, views, device, rank=ranks.rank, world=ranks.world, progress=tell))
    shares = ranks.gather(own)
    if shares is None:
        return None
    scores = Scores.of(video for share in shares for video in share)
    for bad in scores.unreadable:
        message(f"bad video {bad.path}: {bad.cause}; left out of the evaluation")
    protocol = protocol_of(recipe, len(opened.classes), views)
    return _Found(opened=opened, dataset=dataset, views=views, protocol=protocol, scores=scores)


def result_file(model: Path, name: str, out: Path | None, *, raw: bool) -> Path:
    """The file that an evaluation is written to: in the run's folder, or beside what it is of.

    Args:
        model: What is evaluated.
        name: Of the evaluation.
        out: Another folder.
        raw: Whether it is of a run's weights past their average; like that of a checkpoint it has a name of its own.
    """
    from vcycle.runs.loaded_model import run_of

    marks = [model.stem] if model.is_file() and run_of(model) is not None else []
    marks += ["raw"] if raw else []
    return (out or _folder(model)) / f"{'.'.join([name, *marks])}.json"


def _folder(name: Path) -> Path:
    from vcycle.runs.loaded_model import run_of

    if names_recipe(name):
        return Path("runs") / f"{name.stem}-init"
    return run_of(name) or (name if name.is_dir() else name.parent)


def _tell(found: _Found, model: Path, split: str, file: Path, figure: Path | None, json: bool) -> None:
    """Print what was found, then write it down: what took long is not lost to a full disk."""
    from vcycle.report.evaluation import confusion_figure, weakest_table
    from vcycle.tasks.recognition import confusion
    from vcycle.tasks.recognition.eval_report import class_rows, write_findings
    from vcycle.tasks.recognition.metrics import evaluate as evaluate_scores

    opened, dataset = found.opened, found.dataset
    evaluation = evaluate_scores(found.scores, found.protocol)
    about = {"model": str(model), "weights": opened.origin, "step": opened.step, "split": split}
    which = f"after step {opened.step:,}" if opened.step else f"weights {opened.origin}"
    headline = accuracy_line(evaluation, split, len(opened.classes))
    if json:
        print_json(about | asdict(evaluation) | {"file": str(file)})
    else:
        result(f"{headline}, loss {evaluation.loss:.3f}, {which}")
        table = weakest_table(class_rows(found.scores, opened.classes))
        if table is not None:
            result(table)
    write_findings(file, about, evaluation, found.scores, dataset)
    message(f"each class and each video: {file}")
    if figure is not None:
        save_figure(confusion_figure(confusion(found.scores).tolist(), opened.classes, headline), figure)


def changed(recipe: _Recipe, overrides: Sequence[str], source: str) -> _Recipe:
    """A trained model's recipe, with changes to what an evaluation may change.

    Raises:
        RecipeError: for a key that decides what was trained, or one that is wrong.
    """
    from vcycle.tasks.recipes import dump_recipe, parse_any, with_absolute_paths

    for override in overrides:
        section = override.partition("=")[0].partition(".")[0]
        if section not in _CHANGEABLE:
            raise RecipeError(
                f"override {override!r}: the model in {source} is trained already; changes of "
                f"{', '.join(_CHANGEABLE[:-1])} and {_CHANGEABLE[-1]} are accepted, such as evaluation.clips=10"
            )
    return with_absolute_paths(cast("_Recipe", parse_any(dump_recipe(recipe), source, overrides)))


def views_as_changes(text: str | None) -> list[str]:
    """`--views` as changes of the recipe.

    Raises:
        RecipeError: if it says something else than clips x crops.
    """
    if text is None:
        return []
    found = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text.strip())
    if found is None or 0 in (int(found[1]), int(found[2] or 1)):
        raise RecipeError(f"--views {text}: clips x crops, such as 1x1, 10x1 or 10x3, is accepted")
    return [f"evaluation.clips={found[1]}", f"evaluation.crops={found[2] or 1}"]
