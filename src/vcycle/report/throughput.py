"""Renders the results of `bench_data`: readers by video set, loader throughput, and targets."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcycle.report.spread import GAP, narrow, number, spread

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["loader_table", "readers_table", "target_table", "throughput_notes"]


def readers_table(measured: Mapping[str, Any]) -> "Table":
    """The table of readers for one set of videos (from `bench_data`), one row per grid and reader."""
    from rich import box
    from rich.table import Table

    size = f"{measured['width']}x{measured['height']}"
    table = Table(
        title=f"{measured['name']} videos: {measured['files']} of {size}, {measured['seconds']:.0f} s and "
        f"{measured['megabytes']:.1f} MB each",
        box=box.SIMPLE_HEAD,
        padding=GAP,
    )
    table.add_column("clip", no_wrap=True)
    table.add_column("reader", no_wrap=True)
    for column in ("clips/s per core", "CPU ms per clip", "vs plain loop (×)"):
        table.add_column(column, justify="right")
    for grid in measured["grids"]:
        clip = f"{grid['frames']}x{grid['size']}x{grid['size']}"
        for name, times in grid["readers"].items():
            over = times["over_plain"]
            table.add_row(
                clip,
                name,
                spread(times["clips_per_second"]),
                spread(times["cpu_ms"]),
                "" if over is None or over["low"] == over["high"] == 1 else spread(over),
            )
            clip = ""
        for name, fault in grid["faults"].items():
            table.add_row(clip, name, fault, "", "")
    table.caption = "median over repeats (lowest to highest)"
    return table


def loader_table(rows: list[dict[str, Any]]) -> "Table":
    """The table of loader throughput relative to a bare loop over the same source."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"through the loader, {rows[0]['frames']}x{rows[0]['size']}x{rows[0]['size']}",
        box=box.SIMPLE_HEAD,
        padding=GAP,
    )
    table.add_column("source", no_wrap=True)
    for column in (
        "workers",
        "bare loop, ms per clip",
        "with batches, ms",
        "loader, ms per clip",
        "of workers x bare loop",
        "of workers x with batches",
        "of parallel bare loops",
    ):
        table.add_column(narrow(column), justify="right", no_wrap=True)
    medians = ("bare_ms", "batches_ms", "loader_ms", "share", "share_of_batches")
    for row in rows:
        table.add_row(
            row["source"],
            str(row["workers"]),
            *(number(row[key]["median"]) for key in medians),
            spread(row["share_of_beside"]),
        )
    table.caption = (
        "median over repeats, in the last column with the lowest and the highest; wall-clock time, which other load on "
        "the machine affects"
    )
    return table


def target_table(targets: list[dict[str, Any]]) -> "Table":
    """The table of targets, and whether this machine reached them."""
    from rich import box
    from rich.table import Table

    table = Table(title="targets", box=box.SIMPLE_HEAD)
    table.add_column("what")
    table.add_column("target", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("reached")
    for target in targets:
        table.add_row(
            target["what"], target["target"], spread(target["measured"]), "yes" if target["reached"] else "no"
        )
    return table


def throughput_notes(found: Mapping[str, Any]) -> list[str]:
    """The machine, the versions, and the readers that could not be compared."""
    machine = found["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return [
        f"{machine['processor']}, {machine['cores']} cores, load {found['load']:.1f} at the start; {found['state']}",
        versions,
        *(f"{name} {why}: not compared" for name, why in found["absent"].items()),
    ]
