"""`vcycle check`: a dataset looked through."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.cli.datasets import (
    PATIENCE,
    Data,
    DataOverrides,
    Layout,
    RecipeOption,
    Workers,
    dataset_of,
    files,
    refuse,
    videos_of,
)
from vcycle.console.arguments import Json
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import DataError

if TYPE_CHECKING:
    from vcycle.data import CheckReport
    from vcycle.tasks.recognition.data import Progress
    from vcycle.tasks.superres.pairs.layouts import ClipPairs

__all__ = ["check"]

_PREPARED = "goes with data that was not prepared: of this, all is compared with what was written"


def check(
    data: Data,
    overrides: DataOverrides = None,
    recipe: RecipeOption = None,
    layout: Layout = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read the packets alone: finds what cannot be opened or was cut short.")
    ] = False,
    workers: Workers = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=1, help="Seconds without progress after which a file is given up, by default 60."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Decode every video of a dataset and list the bad ones.

    Of a prepared dataset, checksums are compared. Clips of super-resolution are looked through with --recipe of one of
    its recipes. Nothing is written. The exit code is 1 if a file is bad.
    """
    from vcycle.data import check_prepared, check_videos, is_prepared, load_index
    from vcycle.tasks.recipes import load_any
    from vcycle.tasks.recognition.data import every_video, left_out

    task = None if recipe is None else load_any(recipe).task
    folder = Path(data).expanduser()
    of_videos: dict[str, object] = {"--quick": quick, "--timeout": timeout}
    kind = "file"
    with progress() as shown:
        if is_prepared(folder):
            refuse(_PREPARED, of_videos | {"--layout": layout, "KEY=VALUE": overrides})
            report = check_prepared(load_index(folder), workers=workers, progress=shown.count)
        elif (clips := _clips(folder, recipe if task == "superresolution" else None, layout, overrides)) is not None:
            refuse("goes with videos, and these are clips of super-resolution", of_videos | {"--workers": workers})
            report, kind = _check_clips(clips.values(), shown.count), "clip"
        else:
            listed = every_video(videos_of(data, recipe, layout, overrides), cut=False, vanished=True)
            for note in left_out(listed.values()):
                message(note)
            patience = timeout or PATIENCE
            report = check_videos(listed, quick=quick, workers=workers, patience=patience, progress=shown.count)
    if json:
        print_json({"data": str(folder)} | asdict(report))
    else:
        for path, cause in report.bad.items():
            result(f"bad: {path}: {cause}")
        for path, cause in report.damaged.items():
            result(f"damaged: {path}: {cause}")
        result(f"{files(report.videos, kind)}: {len(report.bad):,} bad, {len(report.damaged):,} damaged")
    if report.bad:
        raise typer.Exit(1)


def _clips(
    folder: Path, recipe: str | None, layout: str | None, overrides: Sequence[str] | None
) -> "Mapping[str, ClipPairs] | None":
    """The clips of super-resolution that are there, by split; None where it is videos that are meant.

    Args:
        folder: Where.
        recipe: One of super-resolution, if that was named.
        layout: As given, like what follows.
        overrides: Changes of the recipe.
    """
    from vcycle.tasks.superres.data import SPLITS, every_clip
    from vcycle.tasks.superres.pairs.journal import is_begun
    from vcycle.tasks.superres.pairs.layouts import read_pairs
    from vcycle.tasks.superres.pairs.store import is_store
    from vcycle.tasks.superres.recipe import SuperresRecipe

    places = (folder, *(folder / split for split in SPLITS))
    if begun := next(filter(is_begun, places), None):
        raise DataError(f"{begun}: is not prepared yet: the same `vcycle prepare` goes on with it")
    if stores := list(filter(is_store, places)):
        refuse(_PREPARED, {"--layout": layout, "KEY=VALUE": overrides})
        return {str(place): read_pairs(place) for place in stores}
    meant = None if recipe is None else dataset_of(str(folder), recipe, layout, overrides)
    return every_clip(meant) if isinstance(meant, SuperresRecipe) else None


def _check_clips(splits: "Iterable[ClipPairs]", progress: "Progress") -> "CheckReport":
    from vcycle.data import CheckReport
    from vcycle.tasks.superres.pairs.check import check_clips

    bad: dict[str, str] = {}
    start, clips = time.monotonic(), 0
    for pairs in splits:
        bad |= {fault.path: fault.cause for fault in check_clips(pairs, lambda *done: progress("checking", *done))}
        clips += len(pairs)
    return CheckReport(videos=clips, bad=bad, damaged={}, seconds=time.monotonic() - start)
