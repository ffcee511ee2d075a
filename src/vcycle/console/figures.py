"""Saving pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.console.output import message
from vcycle.errors import VcycleError
from vcycle.utils.extras import NotInstalledError, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_figure", "optional_figures", "save_figure"]


@contextmanager
def optional_figures() -> Iterator[None]:
    """Within: pictures that were not asked for; without matplotlib they are left out, with a message."""
    try:
        yield
    except NotInstalledError as error:
        message(f"no pictures: {error}")


def check_figure(path: Path) -> None:
    """Refuse a name that no picture can be saved under, before it is drawn.

    Raises:
        VcycleError: if it ends in no format of pictures, is a folder's, or matplotlib is not installed.
    """
    known = new_figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise VcycleError(f"picture {path} cannot be written: a name that ends in {', '.join(known)} is accepted")
    if path.is_dir():
        raise VcycleError(f"picture {path} cannot be written: a folder has that name")


def save_figure(figure: "Figure", path: Path) -> None:
    """Save a picture, and say where.

    Raises:
        VcycleError: if it cannot be written; as `check_figure`.
    """
    check_figure(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise VcycleError(f"picture {path} cannot be written: {error.strerror or error}") from error
    message(f"picture: {path}")
