"""Renders the results of `bench_steps`: a table of batch shapes, a table of plans, and a figure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.plan import BatchShape
from vcycle.report.spread import number, spread
from vcycle.utils.extras import new_figure
from vcycle.utils.units import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["plans_table", "shape_of", "shapes_table", "steps_figure", "steps_notes"]


def shapes_table(found: Mapping[str, Any]) -> "Table":
    """The table of batch shapes from `bench_steps`, one row each."""
    from rich import box
    from rich.table import Table

    with_data = found["workers"] is not None
    with_memory = any(row["memory_mib"] is not None for row in found["shapes"])
    table = Table(title="a training step at each batch shape", box=box.SIMPLE_HEAD)
    table.add_column("clips × frames × side", no_wrap=True)
    columns = ["BN", "GFLOP", "step, ms", "forward", "backward", "optimizer"]
    columns += ["with data, ms", "of it waiting"] * with_data + ["memory, MiB"] * with_memory
    for column in (*columns, "clips/s", "realised / work", "of peak"):
        table.add_column(column, justify="right")
    table.add_column("bound by")
    for row in found["shapes"]:
        parts = row["parts_ms"] or {}
        cells = [str(row["bn_batch"]), number(row["gflop"]), spread(row["step_ms"])]
        cells += [number(parts.get(name)) for name in ("forward", "backward", "optimizer")]
        if with_data:
            cells += [spread(row["loaded_ms"]), number(row["wait_ms"]["median"])]
        cells += [f"{row['memory_mib'] or 0:,}"] * with_memory
        cells += [number(row["clips_per_second"]), spread(row["realised"]), f"{row['of_peak']:.0%}"]
        table.add_row(shape_of(row), *cells, row["bound_by"])
    table.caption = (
        "median over repeats (lowest to highest). realised / work: the FLOP rate relative to the full shape; 1 means "
        "that a plan saves as much time as work"
    )
    return table


def plans_table(found: Mapping[str, Any]) -> "Table":
    """The table of plans from `bench_steps`, one row each."""
    from rich import box
    from rich.table import Table

    table = Table(title="whole plans, predicted", box=box.SIMPLE_HEAD)
    table.add_column("plan")
    for column in ("steps", "samples", "training time", "CPU time", "faster than constant", "by FLOPs alone"):
        table.add_column(column, justify="right")
    for row in found["plans"]:
        table.add_row(
            row["plan"],
            f"{row['steps']:,}",
            f"{row['samples']:,}",
            _durations(row["seconds"]),
            duration(row["cpu_seconds"]["median"]),
            spread(row["speedup"]),
            number(row["flop_speedup"]),
        )
    counted = "loading included" if found["workers"] is not None else "clips in memory; --data includes loading"
    table.caption = f"training only, {counted}; `vcycle compare` measures the accuracy of plans"
    return table


def steps_notes(found: Mapping[str, Any]) -> list[str]:
    """The device, precision, peak rate and versions of the measurement."""
    machine = found["machine"]
    where = found["device"] if found["device"] != "CPU" else f"{machine['processor']}, {found['threads']} threads"
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    peak = f"a large matrix multiplication reaches {found['peak_gflops']:,.0f} GFLOP/s"
    return [f"{where}, {found['precision']}; {peak}", versions]


def steps_figure(found: Mapping[str, Any], title: str) -> "Figure":
    """Plot the realised speed-up of each shape, its time by part, and the predicted training time of plans."""
    shapes, plans = found["shapes"], found["plans"]
    figure = new_figure(figsize=(13, 1.2 + 0.42 * max(len(shapes), len(plans), 4)), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    names = [f"{shape_of(row)}, BN {row['bn_batch']}" for row in shapes]
    _bars(left, names, [row["realised"] for row in shapes], "tab:blue")
    left.axvline(1, color="black", linewidth=0.8)
    left.set_xlabel("realised speed-up / work ratio")
    _split(middle, shapes)
    middle.set_yticks(range(len(names)), [])
    unit, scale = _unit(max(row["seconds"]["high"] for row in plans))
    times = [{key: value * scale for key, value in row["seconds"].items()} for row in plans]
    bars = _bars(right, [row["plan"] for row in plans], times, "tab:orange")
    right.bar_label(bars, [f"  {row['speedup']['median']:.2f}×" for row in plans], fontsize=9)
    right.margins(x=0.18)
    right.set_xlabel(f"predicted training time ({unit})\n× faster than constant")
    for axis in (left, middle, right):
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}: {found['device']}, {found['precision']}", fontsize=10)
    return figure


def _bars(axis: "Axes", names: Sequence[str], found: Sequence[Mapping[str, float]], colour: str) -> Any:
    """Draw a bar for each median, with its range."""
    medians = [each["median"] for each in found]
    ranges = [[m - each["low"] for m, each in zip(medians, found, strict=True)]]
    ranges += [[each["high"] - m for m, each in zip(medians, found, strict=True)]]
    return axis.barh(names, medians, xerr=ranges, color=colour, alpha=0.75, capsize=3)


def _split(axis: "Axes", shapes: Sequence[Mapping[str, Any]]) -> None:
    """Draw the milliseconds of a step by part."""
    start = [0.0] * len(shapes)
    for part, colour in zip(("forward", "backward", "optimizer"), ("#4c78a8", "#9ecae9", "#54a24b"), strict=True):
        widths = [(row["parts_ms"] or {}).get(part, 0.0) for row in shapes]
        axis.barh(range(len(shapes)), widths, left=start, color=colour, label=part)
        start = [a + b for a, b in zip(start, widths, strict=True)]
    waits = [row["wait_ms"]["median"] if row["wait_ms"] else 0.0 for row in shapes]
    if any(row["wait_ms"] for row in shapes):
        axis.barh(range(len(shapes)), waits, left=start, color="#e45756", label="waiting for data")
    axis.margins(x=0.05)
    axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / len(shapes)), ncols=4)
    axis.set_xlabel("step time by part (ms)")


def _unit(longest: float) -> tuple[str, float]:
    """The unit to show seconds in, and its factor."""
    if longest < 180:
        return "seconds", 1.0
    return ("minutes", 1 / 60) if longest < 10800 else ("hours", 1 / 3600)


def _durations(seconds: Mapping[str, float]) -> str:
    if seconds["low"] == seconds["high"]:
        return duration(seconds["median"])
    return f"{duration(seconds['median'])} ({duration(seconds['low'])} to {duration(seconds['high'])})"


def shape_of(row: Mapping[str, Any]) -> str:
    """The batch shape of a row of `bench_steps`."""
    return str(BatchShape(**{name: row[name] for name in ("batch", "frames", "size", "bn_batch", "tokens")}))
