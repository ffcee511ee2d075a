"""Saves figures."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vcycle.console.output import message
from vcycle.errors import VcycleError
from vcycle.utils.extras import NotInstalledError, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_figure", "optional_figures", "save_figure"]


@contextmanager
def optional_figures() -> Iterator[None]:
    """A block that draws optional figures; without matplotlib it is skipped with a message."""
    try:
        yield
    except NotInstalledError as error:
        message(f"no figures: {error}")


def check_figure(path: Path) -> None:
    """Check that a figure can be saved under a name, before drawing it.

    Raises:
        VcycleError: if the suffix is not an image format, a folder has the name, or matplotlib is not installed.
    """
    known = new_figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise VcycleError(f"figure {path} cannot be written: a name that ends in {', '.join(known)} is accepted")
    if path.is_dir():
        raise VcycleError(f"figure {path} cannot be written: a folder has that name")


def save_figure(figure: "Figure", path: Path, *, dpi: float | Literal["figure"] = 150) -> None:
    """Save a figure and print its path.

    Args:
        figure: The figure.
        path: The file.
        dpi: Dots per inch; by `figure` those of the figure, for one that is made of pixels.

    Raises:
        VcycleError: if it cannot be written, or as `check_figure`.
    """
    check_figure(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi)
    except OSError as error:
        raise VcycleError(f"figure {path} cannot be written: {error.strerror or error}") from error
    message(f"figure: {path}")
