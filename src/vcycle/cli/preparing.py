"""`vcycle prepare`: converts a dataset to a format that loads fast."""

from typing import Annotated, Any

import typer

from vcycle.cli.task_options import options_for, with_options
from vcycle.console.arguments import Json
from vcycle.console.datasets import Data, Workers
from vcycle.data.locations import given_location
from vcycle.errors import DataError
from vcycle.registry import import_attribute
from vcycle.tasks.base import PrepareOptions, tasks

__all__ = ["BAD_LIMIT", "prepare"]

BAD_LIMIT = 0.05
"""Share of unreadable files above which the command exits with 1; the same share stops training by default."""

_FORMATS = {name: found for task in tasks.values() for name, found in task.preparers.items()}
_WRITERS = {name: import_attribute(found.function, f"--to {name}") for name, found in _FORMATS.items()}


@with_options(_WRITERS)
def prepare(
    data: Data,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Output folder; a path or a URL.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="|".join(_FORMATS),
            help=f"Output format: {', '.join(f'{found.about} ({name})' for name, found in _FORMATS.items())}.",
        ),
    ] = next(iter(_FORMATS)),
    workers: Workers = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only estimate disk space and time.")] = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Convert a dataset to a format that loads fast.

    `vcycle train RECIPE data=OUT` trains on the output folder. The same command resumes an interrupted preparation.
    Unreadable files are skipped and listed in OUT/report.json; the exit code is 1 if they are more than 5 %.
    """
    if to not in _FORMATS:
        *others, last = _FORMATS
        raise DataError(f"--to {to}: {', '.join(others)} or {last} is accepted")
    given = PrepareOptions(data=data, out=given_location(out), to=to, workers=workers, dry_run=dry_run, json=json)
    failed = _WRITERS[to](given, **options_for(to, options, _WRITERS, "--to "))
    if failed > BAD_LIMIT:
        raise typer.Exit(1)
