"""The data of a comparison for the page: verdict, table and figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcycle.report.comparison import comparison_note, comparison_rows, draw_comparison, failed, statements
from vcycle.report.page.figures import svgs
from vcycle.tasks.details import Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Study", "study_of"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A comparison of plans."""

    said: Sequence[str]
    """Its statements: speed-ups, differences and verdicts over the constant shape and the control."""
    rows: Sequence[Sequence[str]]
    """The table, with its head first."""
    note: str
    """What the numbers of the table are."""
    figure: Mapping[str, str]
    """The curves and final values as SVG, by theme."""


def study_of(data: Mapping[str, Any]) -> Study:
    """What the page shows of a comparison.

    Args:
        data: The content of `comparison.json`. If it is damaged, any `Exception` of reading plain data is raised.
    """
    tested = data["split"] == "test"

    def draw(figure: "Figure") -> None:
        draw_comparison(data, list(figure.subplots(1 + tested, 1, squeeze=False)[:, 0]), where="below")

    return Study(
        said=[*statements(data), *failed(data)],
        rows=comparison_rows(data),
        note=comparison_note(data),
        figure=svgs(Drawing(draw=draw, height=0.6 + 3.2 * (1 + tested))),
    )
