"""Lists the shipped recipes by folder."""

import os
import shutil
import sys
from collections.abc import Mapping

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["recipe_table"]

_FIRST = ("videos", "demo")
"""Folders listed first: recipes for a user's own videos, and the demo."""

_NARROW = 80
"""Terminal width below which a recipe's description is printed under its name."""


def recipe_table(described: Mapping[str, str]) -> Table:
    """A table of recipes and their descriptions, with a gap between folders.

    Args:
        described: Descriptions by name.
    """
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    narrow = known and shutil.get_terminal_size().columns < _NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=not narrow)
    table.add_column("recipe", no_wrap=not narrow)
    if not narrow:
        table.add_column("description (`vcycle recipes show RECIPE` prints the recipe)")
    last = None
    for name in sorted(described, key=_place):
        folder = name.partition("/")[0]
        if last not in (None, folder):
            table.add_section()
        last = folder
        head, body = Text(name, style="bold"), Text(described[name])
        if narrow:
            table.add_row(head)
            table.add_row(Padding(body, (0, 0, 0, 2)))
        else:
            table.add_row(head, body)
    return table


def _place(name: str) -> tuple[int, str]:
    """Sort key of a recipe in the list."""
    folder = name.partition("/")[0]
    return (_FIRST.index(folder) if folder in _FIRST else len(_FIRST), name)
