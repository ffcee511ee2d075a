"""`vcycle prepare`: a dataset written in a form that trains fast."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json
from vcycle.console.datasets import Data, DataOverrides, Layout, RecipeOption, Workers
from vcycle.errors import DataError

__all__ = ["BAD_LIMIT", "prepare"]

BAD_LIMIT = 0.05
"""Share of files that fail above which the command does: where training stops by default."""


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

    `vcycle train RECIPE data=OUT` takes the folder as it is. An interrupted preparation resumes when the command is
    given again. Files that cannot be read are listed in OUT/report.json and left out; the exit code is 1 if they are
    more than 5 %.
    """
    from vcycle.registry import import_attribute
    from vcycle.tasks.base import PrepareOptions, tasks

    preparers = {name: function for task in tasks for name, function in tasks[task].preparers.items()}
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
