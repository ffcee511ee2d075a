"""Plots plans trained at several lengths: final value against training time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from vcycle.plan.colors import PlanStyle, plan_styles
from vcycle.report.comparison import clock_of, label_of, reference_line
from vcycle.utils.extras import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["has_lengths", "lengths_figure"]


def has_lengths(data: Mapping[str, Any]) -> bool:
    """Whether a comparison has a plan with several lengths."""
    return any(len(lengths) > 1 for lengths in _lengths(data).values())


def lengths_figure(
    comparisons: Mapping[str, Mapping[str, Any]], time: Literal["train_seconds", "cpu_seconds"] = "train_seconds"
) -> "Figure":
    """Plot one line per plan through its lengths: final mean ± standard deviation against time.

    Args:
        comparisons: Data from `Comparison.as_data` by title, drawn side by side. Reads `measure`, `split`, `chance` if
            present (a dash-dotted line), and the times, `value` and `value_std` of each of the `arms`.
        time: The time that speed-ups are of, or the CPU time of the trainings.
    """
    plans = list(dict.fromkeys(plan for data in comparisons.values() for plan in _lengths(data)))
    columns = 2 * len(comparisons)
    # The legend is below: a narrow picture stays readable on a phone.
    height = 3.5 + 0.22 * -(-len(plans) // columns)
    figure = new_figure(figsize=(1 + 3.2 * len(comparisons), height), layout="constrained")
    styles = dict(zip(plans, plan_styles(plans), strict=True))
    for axis, (title, data) in zip(
        figure.subplots(1, len(comparisons), squeeze=False)[0], comparisons.items(), strict=True
    ):
        _draw(axis, data, time, styles)
        axis.set_title(title, fontsize=10)
    handles = {plan: line for axis in figure.axes for line, plan in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(columns, len(plans)),
        fontsize=9,
        title="a dot per length, mean ± sd over seeds",
        title_fontsize=9,
    )
    return figure


def _draw(axis: "Axes", data: Mapping[str, Any], time: str, styles: Mapping[str, PlanStyle]) -> None:
    measure = data["measure"]
    scale = measure["scale"]
    for plan, names in _lengths(data).items():
        arms = sorted((data["arms"][name] for name in names), key=lambda arm: arm[time])
        axis.errorbar(
            [arm[time] for arm in arms],
            [scale * arm["value"] for arm in arms],
            yerr=[scale * arm["value_std"] for arm in arms],
            markersize=5,
            capsize=2,
            label=plan,
            **styles[plan].line,
        )
    reference_line(axis, data, data["split"])
    axis.set_xscale("log")
    words = "processor time (s" if time == "cpu_seconds" else f"training time (s, {clock_of(data)}"
    axis.set(xlabel=f"{words}, log scale)", ylabel=label_of(measure, data["split"]))
    axis.grid(alpha=0.3)
    axis.margins(y=0.15)


def _lengths(data: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of arms by plan: one arm per length."""
    found: dict[str, list[str]] = {}
    for name in data["arms"]:
        found.setdefault(name.partition("@")[0], []).append(name)
    return found
