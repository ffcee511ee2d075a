"""What a page shows of an evaluation beside its numbers: tables, figures and strips of frames. Imports no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Detail", "Drawing", "Strip"]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure to draw, in any theme."""

    draw: "Callable[[Figure], None]"
    """Draws on an empty figure."""
    height: float
    """Height in inches; the width is 6, so that text stays readable on a narrow page."""
    grid: bool = True
    """Whether lines from the ticks cross the axes."""


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Frames of an item, to show side by side."""

    item: str
    """The item, as the evaluation names it."""
    caption: str


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A part of the page about an evaluation: a figure, a table, or items to show."""

    title: str
    drawing: Drawing | None = None
    rows: Sequence[Sequence[str]] = ()
    """The table, with its head first; the first column holds text."""
    strips: Sequence[Strip] = ()
