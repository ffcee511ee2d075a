"""`vcycle prepare`: converts a dataset to a format that loads fast."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json
from vcycle.console.datasets import Data, DataOverrides, Layout, RecipeOption, Workers
from vcycle.errors import DataError

__all__ = ["BAD_LIMIT", "prepare"]

BAD_LIMIT = 0.05
"""Share of unreadable files above which the command exits with 1; the same share stops training by default."""


def prepare(
    data: Data,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder.")],
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
            help="Output format: H.264 files, uncompressed frames, or tiles for super-resolution.",
        ),
    ] = "video",
    scale: Annotated[
        int | None, typer.Option("--scale", help="Tiles: the super-resolution scale, by default 4.")
    ] = None,
    degradation: Annotated[
        str | None,
        typer.Option(
            "--degradation",
            metavar="bicubic|bd|none",
            help="Tiles: how low-resolution frames are made, by default bicubic.",
        ),
    ] = None,
    low: Annotated[Path | None, typer.Option("--low", help="Tiles: a folder of existing low-resolution clips.")] = None,
    resize: Annotated[
        str | None,
        typer.Option("--resize", metavar="FACTOR", help="Tiles: downscale all frames first, such as 1/2."),
    ] = None,
    layout: Layout = None,
    workers: Workers = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=1,
            help="Seconds without progress after which a file counts as bad; by default 60. Not for tiles.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only estimate disk space and time.")] = False,
    json: Json = False,
) -> None:
    """Convert a dataset to a format that loads fast.

    `vcycle train RECIPE data=OUT` trains on the output folder. The same command resumes an interrupted preparation.
    Unreadable files are skipped and listed in OUT/report.json; the exit code is 1 if they are more than 5 %.
    """
    from vcycle.registry import import_attribute
    from vcycle.tasks.base import PrepareOptions, tasks

    preparers = {name: function for task in tasks.values() for name, function in task.preparers.items()}
    if to not in preparers:
        *others, last = preparers
        raise DataError(f"--to {to}: {', '.join(others)} or {last} is accepted")
    given = PrepareOptions(
        data=data,
        out=out,
        to=to,
        recipe=recipe,
        layout=layout,
        overrides=overrides,
        short_side=short_side,
        levels=levels,
        scale=scale,
        degradation=degradation,
        low=low,
        resize=resize,
        workers=workers,
        timeout=timeout,
        dry_run=dry_run,
        json=json,
    )
    failed = import_attribute(preparers[to], f"--to {to}")(given)
    if failed > BAD_LIMIT:
        raise typer.Exit(1)
