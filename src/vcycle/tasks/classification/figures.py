"""Displays an evaluation: a table of the weakest classes, and the confusion matrix as a figure."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from vcycle.utils.extras import new_figure, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["confusion_figure", "draw_confusion", "weakest_table"]

_NUMBERED = 16
"""Maximum number of classes for which the cells of a confusion matrix show their counts."""
_NAMED = 60
"""Maximum number of classes for which rows and columns show class names."""
_LONG = 24
"""Maximum length of a class name in a figure."""


def weakest_table(rows: Sequence[Mapping[str, Any]], count: int = 5, *, item: str = "video") -> "Table | None":
    """A table of the classes with the lowest accuracy; None if all are perfect.

    Args:
        rows: One per class, with `class`, `videos` (by `item`), `accuracy` or `average_precision`, and `taken_for`.
        count: Number of classes to show.
        item: What a class has: `video`.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    measure = "accuracy" if rows and "accuracy" in rows[0] else "average_precision"
    weak = [row for row in rows if row[measure] is not None and row[measure] < 1]
    weak = sorted(weak, key=lambda row: (row[measure], -row[f"{item}s"]))[:count]
    if not weak:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("weakest classes")
    table.add_column(f"{item}s", justify="right")
    table.add_column("accuracy" if measure == "accuracy" else "AP", justify="right")
    table.add_column("most often confused with" if measure == "accuracy" else "")
    for row in weak:
        other = row.get("taken_for")
        taken = f"{other['class']} ({other[f'{item}s']})" if other else ""
        table.add_row(Text(row["class"]), f"{row[f'{item}s']:,}", f"{row[measure]:.1%}", Text(taken))
    return table


def confusion_figure(
    matrix: Sequence[Sequence[int]], classes: Sequence[str], title: str, *, item: str = "video"
) -> "Figure":
    """Draw the confusion matrix: each row shows the shares of a class's videos by predicted class.

    Cells show counts, and rows names, as long as they are readable.

    Args:
        matrix: The confusion matrix; rows are true classes, columns are predictions.
        classes: Class names, in the order of rows and columns.
        title: The title above the figure.
        item: What a class has: `video`.
    """
    side = min(max(3.2, 1.2 + 0.42 * len(classes)), 9.0)
    figure = new_figure(figsize=(side + 3.2, side + 2.2), layout="compressed")
    draw_confusion(figure, matrix, classes, side=side, item=item)
    # matplotlib does not wrap titles.
    figure.axes[0].set_title("\n".join(wrap(title, round(13 * side))), fontsize=9, loc="left")
    return figure


def draw_confusion(
    figure: "Figure",
    matrix: Sequence[Sequence[int]],
    classes: Sequence[str],
    *,
    side: float,
    item: str = "video",
    longest: int = _LONG,
) -> None:
    """Draw the confusion matrix on an empty figure, as `confusion_figure`.

    Args:
        figure: The figure.
        matrix: The confusion matrix; rows are true classes, columns are predictions.
        classes: Class names, in the order of rows and columns.
        side: Side of the matrix in inches, about.
        item: What a class has: `video`.
        longest: Characters of a class name; longer ones are cut.
    """
    import numpy as np

    counts = np.asarray(matrix, dtype=np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    number = len(classes)
    axis = figure.subplots()
    # The color follows the square root of the share: with many classes, a tenth in one other class is much.
    picture = axis.imshow(
        shares, cmap="Blues", norm=require("matplotlib.colors").PowerNorm(0.5, 0, 1), interpolation="nearest"
    )
    bar = figure.colorbar(picture, ax=axis, fraction=0.046, pad=0.03, ticks=[0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1])
    bar.ax.set_yticklabels(["0", "1 %", "5 %", "10 %", "25 %", "50 %", "75 %", "100 %"], fontsize=8)
    bar.set_label(f"share of the true class's {item}s")
    if number <= _NAMED:
        names = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in classes]
        size = min(9.0, 0.6 * 72 * side / number)
        axis.set_xticks(range(number), names, rotation=90, fontsize=size)
        axis.set_yticks(range(number), names, fontsize=size)
    else:
        # Too many for names: show class indices.
        axis.tick_params(labelsize=8)
    if number <= _NUMBERED:
        for row in range(number):
            for column in range(number):
                if counts[row, column]:
                    color = "white" if shares[row, column] > 0.35 else "black"
                    text = f"{counts[row, column]:.0f}"
                    axis.text(column, row, text, ha="center", va="center", color=color, fontsize=9)
    unit = "" if number <= _NAMED else " (index)"
    axis.set_xlabel(f"predicted class{unit}")
    axis.set_ylabel(f"true class{unit}")
