"""A comparison for people: one table, and accuracy against time."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["comparison_figure", "comparison_table", "statements"]


def comparison_table(data: Mapping[str, Any], title: str) -> "Table":
    """The arms of a comparison (as `Comparison.as_data` gives it), one row each."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), box=box.SIMPLE_HEAD)
    table.add_column("plan")
    for column in (
        "train time",
        "CPU time",
        "steps",
        "samples",
        f"accuracy ({data['split']})",
        "time vs constant",
        "vs its control",
    ):
        table.add_column(column, justify="right")
    for name, arm in data["arms"].items():
        table.add_row(
            f"[bold]{name}[/bold]" if name == data["plan"] else name,
            f"{arm['train_seconds']:.1f} s",
            f"{arm['cpu_seconds']:.1f} s",
            f"{arm['steps']:,}",
            f"{arm['samples']:,}",
            f"{100 * arm['accuracy']:.1f} % ± {100 * arm['accuracy_std']:.1f}",
            _times(arm.get("over_constant")),
            _times(arm.get("over_control")),
        )
    seeds = next(iter(data["arms"].values()))["seeds"]
    table.caption = f"mean over {seeds} seed{'s' * (seeds > 1)}, ± standard deviation; 1/2 means half the time"
    return table


def statements(data: Mapping[str, Any]) -> list[str]:
    """What the best plan gains over the constant shape and over its control, with intervals."""
    best = data["plan"]
    if best is None:
        return []
    said = []
    for key, other in (("over_constant", "the constant shape"), ("over_control", "its LR-matched control")):
        gain = data["arms"][best].get(key)
        if gain is None:
            continue
        length = data["constant"] if key == "over_constant" else data["control"]
        other += f" ({length})" if "@" in (length or "") else ""
        text = f"{best} takes {_times(gain)} of the training time of {other}"
        paired, welch = gain["paired_difference"], gain["accuracy_difference"]
        interval, method = (welch, "Welch") if paired is None else (paired, "paired bootstrap over seeds and videos")
        if interval is not None:
            low, high = 100 * interval["low"], 100 * interval["high"]
            text += (
                f"; accuracy {100 * interval['difference']:+.1f} points "
                f"({interval['confidence']:.0%} interval {low:+.1f} to {high:+.1f}, {method})"
            )
        said.append(text)
    return said


def comparison_figure(data: Mapping[str, Any]) -> "Figure":
    """Accuracy on validation against training time, mean over seeds with the range; final accuracy as a mark."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    colors = ("tab:gray", "tab:olive", "tab:orange", "tab:blue", "tab:green", "tab:purple", "tab:brown", "tab:pink")
    for (name, arm), color in zip(data["arms"].items(), colors * (len(data["arms"]) // len(colors) + 1), strict=False):
        runs = [r for r in data["runs"] if r["arm"] == name]
        points = _common(runs)
        seconds = [fmean([p[0] for p in column]) for column in points]
        values = [[100 * p[2] for p in column] for column in points]
        width = 2.5 if name == data["plan"] else 1.3
        axis.plot(seconds, [fmean(v) for v in values], color=color, linewidth=width, label=name)
        axis.fill_between(
            seconds, [min(v) for v in values], [max(v) for v in values], color=color, alpha=0.15, linewidth=0
        )
        axis.errorbar(
            [arm["train_seconds"]],
            [100 * arm["accuracy"]],
            yerr=[100 * arm["accuracy_std"]],
            color=color,
            marker="o",
            capsize=3,
        )
    axis.set_xlabel("training time (s)")
    axis.set_ylabel("accuracy (%)")
    axis.set_xlim(0, None)
    axis.grid(alpha=0.3)
    axis.legend(
        loc="lower right",
        title=f"line: val, range over seeds\ndot: {data['split']} at the end, ± sd",
        fontsize=8,
        title_fontsize=7,
    )
    # A title does not break its lines, and would leave the picture.
    said = [line for text in statements(data) for line in wrap(text, 100)]
    axis.set_title("\n".join(said), fontsize=8, loc="left")
    return figure


def _common(runs: Sequence[Mapping[str, Any]]) -> list[list[Sequence[float]]]:
    """The points of all seeds' curves, side by side: validations fall on the same steps."""
    return [list(column) for column in zip(*(r["curve"] for r in runs), strict=False)]


def _times(gain: Mapping[str, Any] | None) -> str:
    """How much time something takes of another's: 1/2.50, or 1.25× where it takes longer."""
    if gain is None:
        return ""
    times = gain["speedup"]
    return f"1/{times:.2f}" if times >= 1 else f"{1 / times:.2f}×"
