"""Renders the results of `bench_steps`: a table of batch shapes, a table of plans, and a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vcycle.plan import BatchShape
from vcycle.plan.colors import plan_styles
from vcycle.report.parts import PART_COLORS, RATE, WAITING
from vcycle.report.spread import GAP, number, spread
from vcycle.utils.extras import new_figure
from vcycle.utils.units import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = [
    "plans_table",
    "realised_of",
    "shape_cells",
    "shape_columns",
    "shapes_table",
    "step_of",
    "steps_figure",
    "steps_notes",
]


def shape_columns(found: Mapping[str, Any]) -> tuple[str, str]:
    """The headers of a batch shape: itself, and the groups of BatchNorm or, if a plan drops some, the tokens."""
    return "batch shape", "tokens" if _drops_tokens(found) else "BN"


def shape_cells(found: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, str]:
    """A batch shape of `bench_steps`, as `shape_columns` says."""
    shape = replace(_shape(row), tokens=1.0)
    return str(shape), f"{100 * row['tokens']:.3g} %" if _drops_tokens(found) else str(shape.bn_batch)


def _drops_tokens(found: Mapping[str, Any]) -> bool:
    return any(row["tokens"] < 1 for row in found["shapes"])


def shapes_table(found: Mapping[str, Any]) -> "Table":
    """The table of batch shapes from `bench_steps`, one row each, at most 100 columns wide."""
    from rich import box
    from rich.table import Table

    with_data = found["workers"] is not None
    with_memory = not with_data and any(row["memory_mib"] is not None for row in found["shapes"])
    table = Table(title="a training step at each batch shape", box=box.SIMPLE_HEAD, padding=GAP)
    columns = [*shape_columns(found), "step, ms", *["with data", "waiting"] * with_data]
    columns += [*["MiB"] * with_memory, "clips/s", "realised / work", *["of peak"] * (not with_data)]
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for row in found["shapes"]:
        cells = [*shape_cells(found, row), number(row[step_of(found)]["median"])]
        if with_data:
            cells += [number(row[step_of(found, "loaded_")]["median"]), number(row["wait_ms"]["median"])]
        cells += [f"{row['memory_mib'] or 0:,}"] * with_memory
        cells += [number(row["clips_per_second"]), spread(row[realised_of(found)])]
        cells += [f"{row['of_peak']:.0%}"] * (not with_data)
        table.add_row(*cells, row["bound_by"])
    table.caption = (
        f"{found['clock']} time, median over repeats (lowest to highest). realised / work: the FLOP rate relative to "
        "the full shape; 1 means that a plan saves as much time as work"
    )
    return table


def plans_table(found: Mapping[str, Any]) -> "Table":
    """The table of plans from `bench_steps`, one row each, at most 100 columns wide."""
    from rich import box
    from rich.table import Table

    table = Table(title="whole plans, predicted", box=box.SIMPLE_HEAD, padding=GAP)
    table.add_column("plan", no_wrap=True)
    for column in ("steps", "samples", "training time", "faster than constant", "by FLOPs alone"):
        table.add_column(column, justify="right", no_wrap=True)
    time, speedup = _plan_keys(found)
    for row in found["plans"]:
        table.add_row(
            row["plan"],
            f"{row['steps']:,}",
            f"{row['samples']:,}",
            duration(row[time]["median"]),
            spread(row[speedup]),
            number(row["flop_speedup"]),
        )
    counted = "loading included" if found["workers"] is not None else "clips in memory; --data includes loading"
    table.caption = f"training only, {found['clock']} time, {counted}; `vcycle compare` measures the accuracy of plans"
    return table


def step_of(found: Mapping[str, Any], loaded: str = "") -> str:
    """The key of a step's milliseconds, by the measurement's clock."""
    if found["clock"] == "processor":
        return f"{loaded}cpu_ms"
    return f"{loaded or 'step_'}ms"


def realised_of(found: Mapping[str, Any]) -> str:
    """The key of realised / work, by the measurement's clock."""
    return "realised_cpu" if found["clock"] == "processor" else "realised"


def _plan_keys(found: Mapping[str, Any]) -> tuple[str, str]:
    """The keys of a plan's seconds and speed-up, by the measurement's clock."""
    return ("cpu_seconds", "cpu_speedup") if found["clock"] == "processor" else ("seconds", "speedup")


def steps_notes(found: Mapping[str, Any]) -> list[str]:
    """The device, precision, peak rate and versions of the measurement."""
    machine = found["machine"]
    where = found["device"]
    if where == "CPU":
        where = f"{machine['processor']}, {found['threads']} thread{'s' * (found['threads'] > 1)}"
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    peak = f"a large matrix multiplication reaches {found['peak_gflops']:,.0f} GFLOP/s"
    return [f"{where}, {found['precision']}; {peak}", versions]


def steps_figure(found: Mapping[str, Any], title: str) -> "Figure":
    """Plot the realised speed-up of each shape, its time by part, and the predicted training time of plans."""
    shapes, plans = found["shapes"], found["plans"]
    figure = new_figure(figsize=(13, 1.2 + 0.42 * max(len(shapes), len(plans), 4)), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    names = [f"{_shape(row)}, BN {row['bn_batch']}" for row in shapes]
    _bars(left, names, [row[realised_of(found)] for row in shapes], color=RATE)
    left.axvline(1, color="black", linewidth=0.8)
    left.set_xlabel("realised speed-up / work ratio")
    _split(middle, shapes)
    middle.set_yticks(range(len(names)), [])
    time, speedup = _plan_keys(found)
    unit, scale = _unit(max(row[time]["high"] for row in plans))
    times = [{key: value * scale for key, value in row[time].items()} for row in plans]
    bars = _bars(right, [row["plan"] for row in plans], times)
    for bar, style in zip(bars, plan_styles(row["plan"] for row in plans), strict=True):
        bar.set(**style.bar)
    right.bar_label(bars, [f"  {row[speedup]['median']:.2f}×" for row in plans], fontsize=9)
    right.margins(x=0.18)
    right.set_xlabel(f"predicted training time\n({unit}, {found['clock']} time)\n× faster than constant")
    for axis in (left, middle, right):
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}: {found['device']}, {found['precision']}", fontsize=10)
    return figure


def _bars(axis: "Axes", names: Sequence[str], found: Sequence[Mapping[str, float]], **how: Any) -> Any:
    """Draw a bar for each median, with its range."""
    medians = [each["median"] for each in found]
    ranges = [[m - each["low"] for m, each in zip(medians, found, strict=True)]]
    ranges += [[each["high"] - m for m, each in zip(medians, found, strict=True)]]
    return axis.barh(names, medians, xerr=ranges, capsize=3, **how)


def _split(axis: "Axes", shapes: Sequence[Mapping[str, Any]]) -> None:
    """Draw the milliseconds of a step by part."""
    start = [0.0] * len(shapes)
    for part, color in PART_COLORS.items():
        widths = [(row["parts_ms"] or {}).get(part, 0.0) for row in shapes]
        axis.barh(range(len(shapes)), widths, left=start, color=color, label=part)
        start = [a + b for a, b in zip(start, widths, strict=True)]
    waits = [row["wait_ms"]["median"] if row["wait_ms"] else 0.0 for row in shapes]
    if any(row["wait_ms"] for row in shapes):
        axis.barh(range(len(shapes)), waits, left=start, color=WAITING, label="waiting for data")
    axis.margins(x=0.05)
    axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / len(shapes)), ncols=4)
    axis.set_xlabel("step by part (ms of wall-clock time)")


def _unit(longest: float) -> tuple[str, float]:
    """The unit to show seconds in, and its factor."""
    if longest < 180:
        return "seconds", 1.0
    return ("minutes", 1 / 60) if longest < 10800 else ("hours", 1 / 3600)


def _shape(row: Mapping[str, Any]) -> BatchShape:
    return BatchShape(**{name: row[name] for name in ("batch", "frames", "size", "bn_batch", "tokens")})
