"""Compares step times of several settings (precision, eager or compiled) side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.report.spread import GAP, number, spread
from vcycle.report.steps import realised_of, shape_cells, shape_columns, step_of

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["variants_table"]


_RANGES = 2
"""Settings up to which ranges fit into 100 columns."""


def variants_table(found: Sequence[Mapping[str, Any]]) -> "Table":
    """A table with a row per batch shape and two columns per setting: step time, and realised speed-up over work ratio.

    Args:
        found: Results of `bench_steps` for each setting, with the same plans.
    """
    from rich import box
    from rich.table import Table

    table = Table(title="a training step at each batch shape", box=box.SIMPLE_HEAD, padding=GAP)
    ranges = len(found) <= _RANGES
    shape, groups = shape_columns(found[0])
    table.add_column(shape, no_wrap=True)
    table.add_column(groups, justify="right", no_wrap=True)
    for each in found:
        table.add_column(f"{_name(each)}, ms", justify="right")
        table.add_column("realised / work", justify="right", no_wrap=ranges)
    for place, row in enumerate(found[0]["shapes"]):
        cells = [cell for each in found for cell in _cells(each, place, ranges=ranges)]
        table.add_row(*shape_cells(found[0], row), *cells)
    clocks = " and ".join(dict.fromkeys(each["clock"] for each in found))
    table.caption = (
        f"{clocks} time, median over repeats{' (lowest to highest)' * ranges}; settings were measured one after "
        "another. realised / work: the FLOP rate relative to the full shape in the same setting; 1 means that a plan "
        "saves as much time as work"
    )
    return table


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['precision']}{', compiled' if found['compiled'] else ''}"


def _cells(found: Mapping[str, Any], place: int, *, ranges: bool) -> tuple[str, str]:
    row = found["shapes"][place]
    realised = row[realised_of(found)]
    return number(row[step_of(found)]["median"]), spread(realised) if ranges else number(realised["median"])
