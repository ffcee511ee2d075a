"""What steps and plans take, for people: two tables, and a picture of both."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcycle.report.spread import duration, number, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["plans_table", "shapes_table", "steps_figure", "steps_notes"]


def shapes_table(found: Mapping[str, Any]) -> "Table":
    """The batch shapes of `bench_steps`, a row each."""
    from rich import box
    from rich.table import Table

    with_data = any(row["data_ms"] is not None for row in found["shapes"])
    with_memory = any(row["memory_mib"] is not None for row in found["shapes"])
    table = Table(title="a training step at each batch shape", box=box.SIMPLE_HEAD)
    table.add_column("clips × frames × side", no_wrap=True)
    columns = ["BN group", "GFLOP", "step, ms", "forward", "backward", "optimizer"]
    columns += ["data, ms"] * with_data + ["memory, MiB"] * with_memory
    for column in (*columns, "clips/s", "realised / work", "of peak"):
        table.add_column(column, justify="right")
    table.add_column("bound by")
    for row in found["shapes"]:
        parts = row["parts_ms"]
        cells = [str(row["bn_batch"]), number(row["gflop"]), spread(row["step_ms"])]
        cells += [number(parts[name]) for name in ("forward", "backward", "optimizer")]
        cells += [number(row["data_ms"])] * with_data
        cells += [f"{row['memory_mib'] or 0:,}"] * with_memory
        cells += [number(row["clips_per_second"]), spread(row["realised"]), f"{row['of_peak']:.0%}"]
        table.add_row(_shape(row), *cells, row["bound_by"])
    table.caption = (
        "median over turns (lowest to highest). realised / work: the rate of arithmetic over that of the full shape; "
        "1 means that a plan's saving of work becomes a saving of time"
    )
    return table


def plans_table(found: Mapping[str, Any]) -> "Table":
    """The plans of `bench_steps`, a row each."""
    from rich import box
    from rich.table import Table

    table = Table(title="whole plans, predicted", box=box.SIMPLE_HEAD)
    table.add_column("plan")
    for column in ("steps", "samples", "training time", "faster than constant", "by its work alone"):
        table.add_column(column, justify="right")
    for row in found["plans"]:
        table.add_row(
            row["plan"],
            f"{row['steps']:,}",
            f"{row['samples']:,}",
            duration(row["seconds"]["median"]),
            spread(row["speedup"]),
            number(row["flop_speedup"]),
        )
    table.caption = "training only; the accuracy that a plan reaches is `vcycle compare`'s to tell"
    return table


def steps_notes(found: Mapping[str, Any]) -> list[str]:
    """What the figures hold for."""
    machine = found["machine"]
    where = found["device"] if found["device"] != "CPU" else f"{machine['processor']}, {found['threads']} threads"
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    peak = f"a product of large matrices reaches {found['peak_gflops']:,.0f} GFLOP/s"
    return [f"{where}, {found['precision']}; {peak}", versions]


def steps_figure(found: Mapping[str, Any], title: str) -> "Figure":
    """Left, what each shape makes of its saving of work; right, predicted time by plan."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.8 + 0.45 * max(len(found["shapes"]), len(found["plans"]), 5)), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = found["shapes"]
    names = [f"{_shape(row)}, BN {row['bn_batch']}" for row in rows]
    middle = [row["realised"]["median"] for row in rows]
    errors = [
        [row["realised"]["median"] - row["realised"]["low"] for row in rows],
        [row["realised"]["high"] - row["realised"]["median"] for row in rows],
    ]
    left.barh(names, middle, xerr=errors, color="tab:blue", alpha=0.75, capsize=3)
    left.axvline(1, color="black", linewidth=0.8)
    left.invert_yaxis()
    left.set_xlabel("realised speed-up / work ratio")
    plans = found["plans"]
    hours = [row["seconds"]["median"] / 3600 for row in plans]
    unit, scale = ("hours", 1.0) if max(hours) >= 1 else ("minutes", 60.0)
    bars = right.barh([row["plan"] for row in plans], [each * scale for each in hours], color="tab:orange", alpha=0.75)
    right.bar_label(bars, [f" {row['speedup']['median']:.2f}×" for row in plans], fontsize=9)
    right.margins(x=0.15)
    right.invert_yaxis()
    right.set_xlabel(f"predicted training time ({unit}); × faster than constant")
    figure.suptitle(f"{title}: {found['device']}, {found['precision']}", fontsize=10)
    return figure


def _shape(row: Mapping[str, Any]) -> str:
    return f"{row['batch']}×{row['frames']}×{row['size']}²"
