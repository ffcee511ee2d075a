"""Implements `vcycle predict`, which classifies files with a trained model, and the options of `vcycle eval`."""

import io
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.console.datasets import PATIENCE, EngineOption, Merge, PartOption, refuse
from vcycle.console.output import message, print_json, result
from vcycle.data.layouts.files import text_blocks
from vcycle.data.locations import given_location, joined, location
from vcycle.errors import RecipeError
from vcycle.utils.folders import make_folder

if TYPE_CHECKING:
    from vcycle.tasks.classification.predictions import PredictionReport

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
        list[str] | None,
        typer.Argument(metavar="FILE...", help="Videos of any length, or images; of any size. Paths or URLs."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print per file.")] = 5,
    views: ViewsOption = None,
    window: Annotated[
        float | None,
        typer.Option("--window", metavar="SECONDS", help="Predict each time window of this length on its own."),
    ] = None,
    stride: Annotated[
        float | None,
        typer.Option(
            "--stride", metavar="SECONDS", help="With --window: from one start to the next; by default as long."
        ),
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option("--overlay", metavar="OUT.mp4", help="With --window: write the video with its labels drawn."),
    ] = None,
    listed: Annotated[
        Path | None, typer.Option("--list", metavar="LIST", help="A text file with a path or URL per line.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Folder or URL for predictions.jsonl. The same command resumes an interrupted run."
        ),
    ] = None,
    engine: EngineOption = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="With --out: processes, each with a copy of the model.")
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, help="With --engine ray: GPUs of each process, such as 1 or 0.5.")] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=1,
            help="With --out: seconds without progress after which the run ends; by default 60.",
        ),
    ] = None,
    part: PartOption = None,
    merge: Merge = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Print the most likely classes of videos or images.

    With --out, they are written to a folder instead. An unreadable file is reported, the others are still predicted,
    and the exit code is 2.
    """
    from vcycle.console import process
    from vcycle.console.progress import progress
    from vcycle.data.engines import make_engine
    from vcycle.data.prepare.parts import Part
    from vcycle.tasks.classification.opening import open_predictor
    from vcycle.tasks.classification.predictions import Predictions, has_failed
    from vcycle.tasks.classification.predictor import SHORTEST_WINDOW
    from vcycle.tasks.prediction import Prediction

    paths = [*(files or []), *(_listed(listed) if listed is not None else [])]
    if not paths:
        raise RecipeError("no files: give FILE..., or --list LIST")
    if window is None:
        refuse("needs --window SECONDS", {"--stride": stride, f"--overlay {overlay}": overlay})
    for name, seconds in (("--window", window), ("--stride", stride)):
        if seconds is not None and not SHORTEST_WINDOW <= seconds < float("inf"):
            raise RecipeError(f"{name} {seconds:g}: at least {SHORTEST_WINDOW:g} seconds are accepted")
    if overlay is not None:
        _check_overlay(overlay, paths, out)
    changes = eval_options(views=views)
    of_runs: dict[str, object] = {
        "--engine": engine != "local",
        "--workers": workers,
        "--gpus": gpus,
        "--timeout": timeout,
    }
    if out is not None:
        if merge:
            refuse("does not go with --merge, which takes all parts", {f"--part {part}": part, **of_runs})
        refuse("needs --engine ray", {"--gpus": engine == "local" and gpus})
        number = None if part is None else Part.parse(part)
        # Workers may run in other folders.
        model, place = model.absolute(), given_location(out).absolute()
        paths = [str(location(path).absolute()) for path in paths]
        predictions = Predictions(place, model, paths, changes, top, number, window=window, stride=stride)
        if merge:
            report = predictions.merge()
        else:
            count = workers or (1 if engine == "local" else None)
            chosen = make_engine(engine, workers=count, patience=timeout or PATIENCE, gpus=gpus)
            with process.resumable("finished files are kept: the same command resumes it"), progress() as shown:
                report = predictions.run(chosen, shown.count)
        _tell(out, report, json=json)
        return
    refuse("needs --out FOLDER", of_runs | {"--part": part, "--merge": merge})
    predictor = open_predictor(model, changes, len(paths), message)
    rows: list[dict[str, Any]] = []
    failed = False
    windows: list[Prediction] = []

    def show(part: Prediction) -> None:
        """Show a window as soon as it is predicted: a video may have thousands."""
        if overlay is not None:
            windows.append(replace(part, scores=None))
        name = f"{part.source} {part.start:.2f}-{part.end:.2f} s"
        if part.error is not None:
            message(f"error: {name}: {part.error}")
        elif not json:
            result(f"{name}: {_listed_classes(part.classes)}")

    for row in predictor.rows(paths, top, message, window=window, stride=stride, on_window=show):
        if "error" in row:
            message(f"error: {row[predictor.item]}: {row['error']}")
        elif not json and window is None:
            result(f"{row[predictor.item]}: {_listed_classes(row['classes'])}")
        failed |= has_failed(row)
        if json:
            rows.append(row)
    if json:  # before the overlay, which may fail
        about = {"model": str(model), "weights": predictor.loaded.origin, "protocol": predictor.protocol}
        print_json(about | {f"{predictor.item}s": rows})
    if overlay is not None and windows:
        from vcycle.tasks.classification.overlay import write_overlay

        with progress() as shown:
            write_overlay(paths[0], windows, overlay, progress=lambda *done: shown.count("writing frames", *done))
        message(f"overlay: {overlay}")
    if failed:
        raise typer.Exit(2)


def _check_overlay(overlay: Path, paths: list[str], out: str | None) -> None:
    """Refuse an overlay that cannot be written, before anything is predicted."""
    from vcycle.data.video.writing import check_other, check_suffix
    from vcycle.utils.extras import check_installed

    refuse("does not go with --overlay, which shows one video", {"--out": out})
    if len(paths) != 1:
        raise RecipeError(f"--overlay {overlay}: one video is accepted, {len(paths)} are given")
    check_other(overlay, Path(paths[0]), f"--overlay {overlay}")
    if overlay.is_dir():
        raise RecipeError(f"--overlay {overlay} is a folder: name a file")
    check_suffix(overlay)
    make_folder(overlay.parent)
    check_installed("matplotlib", "--overlay needs")


def _listed_classes(classes: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {score:.1%}" for name, score in classes.items())


def _listed(file: Path) -> list[str]:
    """Return the paths and URLs of a list; relative paths are of the list's folder."""
    file = file.expanduser()
    lines = (line.strip() for block in text_blocks(file) for line in io.StringIO(block, newline=None))
    return [str(joined(file.parent, line)) for line in lines if line]


def _tell(out: str, report: "PredictionReport", *, json: bool) -> None:
    """Print the result of predictions in a folder."""
    if json:
        print_json({"out": out} | asdict(report))
    else:
        for path, cause in report.redone.items():
            message(f"redone: {path} and those after it: {cause}")
        result(f"{out}: {report.files:,} files, {report.failed:,} failed")
    if report.failed:
        raise typer.Exit(2)
