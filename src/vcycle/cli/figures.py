"""Saving pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.cli.output import message
from vcycle.errors import VcycleError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save_figure"]


def save_figure(figure: "Figure", path: Path) -> None:
    """Save a picture, and say where.

    Raises:
        VcycleError: if it cannot be written, or its name ends in no format of pictures.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise VcycleError(f"picture {path} cannot be written: {error}") from error
    message(f"picture: {path}")
