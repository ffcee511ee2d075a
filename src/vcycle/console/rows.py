"""Writes rows as CSV, one at a time, however many there are."""

import csv
import sys
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from vcycle.console.output import message
from vcycle.errors import VcycleError
from vcycle.utils.atomic import atomic_write

__all__ = ["print_rows", "save_rows"]

Row = Mapping[str, int | float | str]


def print_rows(rows: Iterator[Row]) -> None:
    """Print rows to stdout, below a line of their columns."""
    _write(sys.stdout, rows)


def save_rows(rows: Iterator[Row], path: Path) -> None:
    """Save rows to a file, complete or not at all, and print its path.

    Raises:
        VcycleError: if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file, TextIOWrapper(file, encoding="utf-8", newline="") as text:
            _write(text, rows)
    except OSError as error:
        raise VcycleError(f"steps {path} cannot be written: {error.strerror or error}") from error
    message(f"steps: {path}")


def _write(file: TextIO, rows: Iterator[Row]) -> None:
    first = next(rows)
    writer = csv.DictWriter(file, list(first), lineterminator="\n")
    writer.writeheader()
    writer.writerow(first)
    writer.writerows(rows)
