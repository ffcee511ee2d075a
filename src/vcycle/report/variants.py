"""Steps measured in several ways (precision, compiled or not), side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.report.spread import number, spread

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["variants_table"]


def variants_table(found: Sequence[Mapping[str, Any]]) -> "Table":
    """Each batch shape a row, each way two columns: a step's time, and what it makes of its saving of work.

    Args:
        found: What `bench_steps` gave for each way, of the same plans.
    """
    from rich import box
    from rich.table import Table

    table = Table(title="a training step at each batch shape, by the clock", box=box.SIMPLE_HEAD)
    table.add_column("clips × frames × side", no_wrap=True)
    for each in found:
        table.add_column(f"{_name(each)}, ms", justify="right")
        table.add_column("realised / work", justify="right")
    for place, row in enumerate(found[0]["shapes"]):
        cells = [cell for each in found for cell in _cells(each["shapes"][place])]
        table.add_row(f"{row['batch']}×{row['frames']}×{row['size']}², BN {row['bn_batch']}", *cells)
    table.caption = (
        "median over turns (lowest to highest); the ways were measured one after the other. realised / work: the rate "
        "of arithmetic over that of the full shape in the same way; 1 means that a saving of work becomes one of time"
    )
    return table


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['precision']}{', compiled' if found['compiled'] else ''}"


def _cells(row: Mapping[str, Any]) -> tuple[str, str]:
    return spread(row["step_ms"]), number(row["realised"]["median"])
