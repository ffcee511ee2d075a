"""Implements `vcycle prepare --to video|array`, which writes videos in a form that loads fast."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.console import process
from vcycle.console.datasets import (
    PATIENCE,
    DataOverrides,
    EngineOption,
    Layout,
    Merge,
    PartOption,
    RecipeOption,
    refuse,
)
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.data.locations import Location, location
from vcycle.errors import DataError, RecipeError
from vcycle.tasks.base import PrepareOptions, tasks
from vcycle.tasks.recipes import recipe_of_data
from vcycle.tasks.recognition.data import every_video, left_out, without_digits
from vcycle.tasks.recognition.recipe import RecognitionRecipe
from vcycle.utils.folders import free_bytes
from vcycle.utils.units import as_size, counted, duration

if TYPE_CHECKING:
    from vcycle.data import Preparation, PrepareReport, PrepareSettings
    from vcycle.data.prepare.estimate import Estimate

__all__ = ["prepare_videos"]

_SHOWN = 20


def prepare_videos(
    given: PrepareOptions,
    *,
    overrides: DataOverrides = None,
    recipe: RecipeOption = None,
    short_side: Annotated[
        int | None,
        typer.Option("--short-side", help="Short side in pixels; by default 1.15 times the recipe's training.size."),
    ] = None,
    levels: Annotated[str | None, typer.Option("--levels", help="Several short sides, such as 128,256.")] = None,
    layout: Layout = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=1,
            help="Seconds without progress after which a file counts as bad; by default 60. Not for tiles.",
        ),
    ] = None,
    engine: EngineOption = "local",
    part: PartOption = None,
    merge: Merge = False,
) -> float:
    """Write videos at one or several sizes.

    Returns:
        The share of files that failed.

    Raises:
        DataError: if the data or an option is wrong.
        RecipeError: if the recipe is of another task.
    """
    from vcycle.data import Preparation, is_prepared, layout_of, load_index
    from vcycle.data.engines import make_engine
    from vcycle.data.prepare.parts import Part

    out, dry_run, json = given.out, given.dry_run, given.json
    if merge:
        of_runs = {"--engine": engine != "local", "--workers": given.workers, "--timeout": timeout}
        refuse("does not go with --merge, which takes all parts", of_runs)
    found = recipe_of_data(given.data, recipe, layout, overrides)
    if not isinstance(found, RecognitionRecipe):
        ways = " or ".join(f"`--to {to}`" for to in tasks[found.task].preparers)
        hint = f": {ways} prepares clips for it" if ways else ", whose data is not prepared"
        raise RecipeError(f"--recipe {recipe} is of {found.task}{hint}")
    loaded = without_digits(found)
    folder = location(loaded.data.path or given.data)
    layout_of(folder)  # check first that the data exists
    if is_prepared(folder) and load_index(folder).settings.to == "array":
        raise DataError(f"{folder}: is already prepared as arrays; prepare from the original videos")
    settings = _settings(loaded if recipe is not None else None, given.to, levels, short_side)
    videos = every_video(loaded)
    for note in left_out(videos.values()):
        message(note)
    patience = timeout or PATIENCE
    preparation = Preparation(
        videos,
        out,
        settings,
        data=folder,
        workers=given.workers,
        patience=patience,
        engine=None if merge else make_engine(engine, workers=given.workers, patience=patience),
        part=None if part is None else Part.parse(part),
    )
    if merge:
        if part is not None or dry_run:
            raise DataError(f"--merge takes all parts: leave out {'--dry-run' if part is None else f'--part {part}'}")
        return _done(given, preparation.merge())
    estimate = preparation.estimate()
    if dry_run:
        if json:
            print_json({"out": str(out), "estimate": None if estimate is None else asdict(estimate)})
        else:
            result(_estimated(preparation, estimate))
        return 0.0
    if estimate is not None:
        message(_estimated(preparation, estimate))
        preparation.check_space(estimate)
    with process.resumable("finished files are kept: the same command resumes it"), progress() as shown:
        report = preparation.run(shown.count)
    return _done(given, report)


def _done(given: PrepareOptions, report: "PrepareReport") -> float:
    """Print the report; return the share of files that failed."""
    if given.json:
        print_json({"out": str(given.out)} | asdict(report))
    else:
        _tell(given.out, report)
    return len(report.failed) / max(report.videos, 1)


def _settings(
    recipe: RecognitionRecipe | None, to: str, levels: str | None, short_side: int | None
) -> "PrepareSettings":
    from vcycle.data import PrepareSettings
    from vcycle.data.prepare.settings import short_side_for

    if levels is not None and short_side is not None:
        raise DataError(f"--levels {levels} and --short-side {short_side} are mutually exclusive: give one")
    if levels is not None:
        try:
            sides = tuple(int(side) for side in levels.split(","))
        except ValueError:
            raise DataError(f"--levels {levels}: must be short sides in pixels, such as 128,256") from None
    elif short_side is not None:
        sides = (short_side,)
    elif recipe is not None:
        sides = (short_side_for(recipe.training.size),)
    else:
        raise DataError("the size is unknown: give --recipe RECIPE, to fit its largest crop, or --short-side PIXELS")
    return PrepareSettings(to="video" if to == "video" else "array", levels=sides)


def _estimated(preparation: "Preparation", estimate: "Estimate | None") -> str:
    if estimate is None:
        return "nothing left to do, or no file can be read"

    tried = "" if estimate.sampled == estimate.files else f" (from {estimate.sampled} of them)"
    disk = f"{as_size(estimate.bytes[0])} to {as_size(estimate.bytes[1])} of disk"
    free = f" ({as_size(free_bytes(preparation.out))} free)" if isinstance(preparation.out, Path) else ""
    time = f"{duration(estimate.seconds[0])} to {duration(estimate.seconds[1])}"
    workers = preparation.engine.workers
    processes = f"{workers} process{'es' if workers > 1 else ''}"
    return f"{counted(estimate.files, 'file')} to do{tried}: about {disk}{free} and {time} with {processes}"


def _tell(out: Location, report: "PrepareReport") -> None:
    from vcycle.data.prepare.names import REPORT

    for path, cause in list(report.failed.items())[:_SHOWN]:
        message(f"failed: {path}: {cause}")
    if len(report.failed) > _SHOWN:
        message(f"failed: {len(report.failed) - _SHOWN:,} more, listed in {out / REPORT}")
    for path, frames in list(report.damaged.items())[:_SHOWN]:
        message(f"damaged: {path}: {frames} frames cannot be decoded and repeat the previous frame")
    for path, cause in list(report.incomplete.items())[:_SHOWN]:
        message(f"damaged: {path}: {cause}")
    for path, cause in list(report.redone.items())[:_SHOWN]:
        message(f"redone: {path}: {cause}")
    if len(report.redone) > _SHOWN:
        message(f"redone: {len(report.redone) - _SHOWN:,} more, listed in {out / REPORT}")
    if report.left_over:
        message(f"{report.left_over:,} files in {out} no longer belong to a video and are ignored")
    done = report.videos - len(report.failed)
    damaged = len(report.damaged.keys() | report.incomplete.keys())
    kept = f" ({report.kept:,} from an earlier run)" if report.kept else ""
    result(
        f"{out}: {done:,} of {report.videos:,} files{kept}, {len(report.failed):,} failed, {damaged:,} "
        f"damaged; {as_size(report.source_bytes)} became {as_size(report.bytes)} in {duration(report.seconds)}"
    )
