"""Renders a proposed plan: a table of the candidates."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcycle.utils.units import duration

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["candidates_table"]


def candidates_table(found: Mapping[str, Any]) -> "Table":
    """The table of the plans within the bounds, from a proposal's data: those of the pilot first, then by score."""
    from rich import box
    from rich.table import Table

    measure = found["measure"]
    title = "plans for the same time" if found["target"] is None else "plans of the pilot, for the same time"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("plan")
    for column in ("length", "updates", "samples", "full shape", "time", "work", f"pilot, {measure['unit']}"):
        table.add_column(column, justify="right")
    rows = [row for row in found["candidates"] if row["out_of_bounds"] is None]
    for row in sorted(rows, key=lambda row: (-len(row["pilot"]), not row["chosen"], -row["score"])):
        values = [f"{measure['scale'] * each['value']:.{measure['digits']}f}" for each in row["pilot"]]
        table.add_row(
            ("→ " if row["chosen"] else "  ") + row["label"] + (" (the recipe's)" if row["own"] else ""),
            row["plan"].rpartition("@")[2],
            f"{row['steps']:,}",
            f"{row['samples']:,}",
            f"{row['full_share']:.0%}",
            duration(row["seconds"]),
            f"{row['work']:,.0f}",
            ", ".join(values),
        )
    out = len(found["candidates"]) - len(rows)
    table.caption = (
        f"{found['clock']} time, predicted from measured steps; work in steps of the constant shape; {out} more plans "
        "are out of bounds"
    )
    return table
