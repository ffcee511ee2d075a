"""Compares step times of several settings (precision, eager or compiled) side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.report.spread import number, spread
from vcycle.report.steps import shape_of

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["variants_table"]


def variants_table(found: Sequence[Mapping[str, Any]]) -> "Table":
    """A table with a row per batch shape and two columns per setting: step time, and realised speed-up over work ratio.

    Args:
        found: Results of `bench_steps` for each setting, with the same plans.
    """
    from rich import box
    from rich.table import Table

    table = Table(title="a training step at each batch shape, wall-clock time", box=box.SIMPLE_HEAD)
    table.add_column("clips × frames × side", no_wrap=True)
    for each in found:
        table.add_column(f"{_name(each)}, ms", justify="right")
        table.add_column("realised / work", justify="right")
    for place, row in enumerate(found[0]["shapes"]):
        cells = [cell for each in found for cell in _cells(each["shapes"][place])]
        table.add_row(f"{shape_of(row)}, BN {row['bn_batch']}", *cells)
    table.caption = (
        "median over repeats (lowest to highest); settings were measured one after another. realised / work: the FLOP "
        "rate relative to the full shape in the same setting; 1 means that a plan saves as much time as work"
    )
    return table


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['precision']}{', compiled' if found['compiled'] else ''}"


def _cells(row: Mapping[str, Any]) -> tuple[str, str]:
    return spread(row["step_ms"]), number(row["realised"]["median"])
