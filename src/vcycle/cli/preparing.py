"""`vcycle prepare`: a dataset written in a form that trains fast."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.cli.datasets import PATIENCE, Data, DataOverrides, Layout, RecipeOption, Workers, files, refuse, videos_of
from vcycle.console.arguments import Json
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.console.units import as_size
from vcycle.errors import DataError
from vcycle.report.spread import duration
from vcycle.tasks.superres.prepare_tiles import prepare_tiles

if TYPE_CHECKING:
    from vcycle.data import Preparation, PrepareReport, PrepareSettings
    from vcycle.data.prepare.estimate import Estimate
    from vcycle.tasks.recognition.recipe import Recipe

__all__ = ["BAD_LIMIT", "prepare"]

BAD_LIMIT = 0.05
"""Share of files that fail above which the command does: where training stops by default."""

_SHOWN = 20


def prepare(
    data: Data,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder for what is written.")],
    overrides: DataOverrides = None,
    recipe: RecipeOption = None,
    short_side: Annotated[
        int | None,
        typer.Option("--short-side", help="Short side in pixels; by default 1.15 times the recipe's training.size."),
    ] = None,
    levels: Annotated[str | None, typer.Option("--levels", help="Several short sides, such as 128,256.")] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="video|array|tiles",
            help="H.264 files; all frames as they are in memory; or tiles, for super-resolution.",
        ),
    ] = "video",
    scale: Annotated[
        int | None, typer.Option("--scale", help="Tiles: high-resolution pixels to a low-resolution one, by default 4.")
    ] = None,
    degradation: Annotated[
        str | None,
        typer.Option(
            "--degradation",
            metavar="bicubic|bd|none",
            help="Tiles: what makes the low-resolution frames, by default bicubic.",
        ),
    ] = None,
    low: Annotated[
        Path | None, typer.Option("--low", help="Tiles: a folder of low-resolution clips that are there already.")
    ] = None,
    resize: Annotated[
        str | None,
        typer.Option("--resize", metavar="FACTOR", help="Tiles: make all frames smaller first, such as 1/2."),
    ] = None,
    layout: Layout = None,
    workers: Workers = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=1,
            help="Seconds without progress after which a file is given up, by default 60; not of tiles.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell how much disk and time it will take.")] = False,
    json: Json = False,
) -> None:
    """Write a dataset in a form that trains fast.

    `vcycle train RECIPE data=OUT` takes the folder as it is. A run that is cut short goes on when the command is given
    again. Files that cannot be read are listed in OUT/report.json and left out; the exit code is 1 if they are more
    than 5 %.
    """
    if to == "tiles":
        of_videos = {"--recipe": recipe, "--levels": levels, "--layout": layout, "--short-side": short_side}
        refuse("goes with --to video or array", of_videos | {"--timeout": timeout, "KEY=VALUE": overrides})
        times, kind = 4 if scale is None else scale, degradation or "bicubic"
        clips = Path(data).expanduser()
        _judge(prepare_tiles(clips, out, times, kind, low, resize, workers, dry_run=dry_run, json=json))
        return
    of_tiles = {"--scale": scale, "--degradation": degradation, "--low": low, "--resize": resize}
    refuse("goes with --to tiles", of_tiles)
    from vcycle.console import process
    from vcycle.data import Preparation, is_prepared, layout_of, load_index
    from vcycle.tasks.recognition.data import every_video, left_out

    loaded = videos_of(data, recipe, layout, overrides)
    folder = Path(loaded.data.path or data)
    layout_of(folder)  # is it there at all? Only then is it worth asking for more
    if is_prepared(folder) and load_index(folder).settings.to == "array":
        raise DataError(f"{folder}: is prepared as arrays already; prepare from the videos that it was made of")
    settings = _settings(loaded if recipe is not None else None, short_side, levels, to)
    videos = every_video(loaded)
    for note in left_out(videos.values()):
        message(note)
    preparation = Preparation(videos, out, settings, data=folder, workers=workers, patience=timeout or PATIENCE)
    estimate = preparation.estimate()
    if dry_run:
        if json:
            print_json({"out": str(out), "estimate": None if estimate is None else asdict(estimate)})
        else:
            result(_estimated(preparation, estimate))
        return
    if estimate is not None:
        message(_estimated(preparation, estimate))
        preparation.check_space(estimate)
    with process.resumable("what is done is kept: the same command goes on with it"), progress() as shown:
        report = preparation.run(shown.count)
    if json:
        print_json({"out": str(out)} | asdict(report))
    else:
        _tell(out, report)
    _judge(len(report.failed) / max(report.videos, 1))


def _judge(failed: float) -> None:
    """Fail where too large a share of the files did."""
    if failed > BAD_LIMIT:
        raise typer.Exit(1)


def _settings(recipe: "Recipe | None", short_side: int | None, levels: str | None, to: str) -> "PrepareSettings":
    from vcycle.data import PrepareSettings
    from vcycle.data.prepare.settings import short_side_for

    if to not in ("video", "array"):
        raise DataError(f"--to {to}: video, array or tiles is accepted")
    if levels is not None and short_side is not None:
        raise DataError(f"--levels {levels} and --short-side {short_side} exclude each other: give one")
    if levels is not None:
        try:
            sides = tuple(int(side) for side in levels.split(","))
        except ValueError:
            raise DataError(f"--levels {levels}: short sides in pixels are accepted, such as 128,256") from None
    elif short_side is not None:
        sides = (short_side,)
    elif recipe is not None:
        sides = (short_side_for(recipe.training.size),)
    else:
        raise DataError("how large? Give --recipe RECIPE, whose largest crop is made room for, or --short-side PIXELS")
    return PrepareSettings(to="video" if to == "video" else "array", levels=sides)


def _estimated(preparation: "Preparation", estimate: "Estimate | None") -> str:
    if estimate is None:
        return "nothing is left to be done, or no file can be read"
    from vcycle.data.prepare.estimate import free_bytes

    tried = "" if estimate.sampled == estimate.files else f" (from {estimate.sampled} of them)"
    disk = f"{as_size(estimate.bytes[0])} to {as_size(estimate.bytes[1])} of disk"
    free = as_size(free_bytes(preparation.out))
    time = f"{duration(estimate.seconds[0])} to {duration(estimate.seconds[1])}"
    processes = f"{preparation.workers} process{'es' if preparation.workers > 1 else ''}"
    return f"{files(estimate.files)} to do{tried}: about {disk}, where {free} are free, and {time} with {processes}"


def _tell(out: Path, report: "PrepareReport") -> None:
    from vcycle.data.prepare.names import REPORT

    for path, cause in list(report.failed.items())[:_SHOWN]:
        message(f"failed: {path}: {cause}")
    if len(report.failed) > _SHOWN:
        message(f"failed: {len(report.failed) - _SHOWN:,} more, listed in {out / REPORT}")
    for path, frames in list(report.damaged.items())[:_SHOWN]:
        message(f"damaged: {path}: {frames} frames cannot be decoded and show the ones before")
    if report.left_over:
        message(f"{report.left_over:,} files in {out} belong to no video any more and are not used")
    done = report.videos - len(report.failed)
    kept = f" ({report.kept:,} of them before)" if report.kept else ""
    result(
        f"{out}: {done:,} of {report.videos:,} files{kept}, {len(report.failed):,} failed, {len(report.damaged):,} "
        f"damaged; {as_size(report.source_bytes)} became {as_size(report.bytes)} in {duration(report.seconds)}"
    )
