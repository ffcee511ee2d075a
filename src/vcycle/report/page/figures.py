"""The page's pictures, as SVG that stands in the page: one for light, one for dark."""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.report.page.runs import RunData, measure, points, time_split

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy_svgs", "loss_svgs", "schedule_svgs", "split_svgs"]

_THEMES = {
    "light": ("#1b1f24", "#d0d7de", ("#0969da", "#bf8700", "#1a7f37", "#cf222e", "#8250df", "#bf3989", "#57606a")),
    "dark": ("#e6edf3", "#3d444d", ("#4493f8", "#d29922", "#3fb950", "#f85149", "#ab7df8", "#db61a2", "#9198a1")),
}
"""Colours of text, of the lines behind what is shown, and of what is shown."""
_MOST_POINTS = 1500


def accuracy_svgs(runs: Sequence[RunData]) -> dict[str, str]:
    """The measure on validation against training time, a line for each run."""

    def draw(axis: "Axes") -> None:
        for run in runs:
            found = points(run)
            axis.plot([x for x, _ in found], [y for _, y in found], "o-", label=run.name, markersize=3)
        name = next((measure(line["evaluation"])[0] for run in runs for line in run.validations), "measure")
        axis.set_xlabel("training time (s)")
        axis.set_ylabel("PSNR (dB)" if name == "PSNR" else f"{name} on validation (%)")
        axis.set_xlim(0, None)
        if len(runs) > 1:
            axis.legend(fontsize=8, frameon=False, labelcolor="linecolor")

    return _both(draw)


def loss_svgs(run: RunData) -> dict[str, str]:
    """The training loss against the step."""

    def draw(axis: "Axes") -> None:
        lines = [line for line in run.steps if isinstance(line.get("loss"), int | float)]
        lines = lines[:: max(1, len(lines) // _MOST_POINTS)]
        axis.plot([line["step"] for line in lines], [line["loss"] for line in lines], color="C0", linewidth=0.8)
        axis.set_xlabel("step")
        axis.set_ylabel("training loss")

    return _both(draw, height=2.6)


def schedule_svgs(run: RunData) -> dict[str, str]:
    """LR, frames, side and batch of every step."""

    def draw(figure: "Figure") -> None:
        axes = figure.subplots(4, 1, sharex=True)
        lines = run.steps[:: max(1, len(run.steps) // _MOST_POINTS)]
        at = [line["step"] for line in lines]
        shown = (("frames", "frames"), ("size", "side (px)"), ("batch", "clips"), ("lr", "LR"))
        for number, (axis, (key, name)) in enumerate(zip(axes, shown, strict=True)):
            axis.plot(at, [line[key] for line in lines], color=f"C{number}", linewidth=1.2, drawstyle="steps-post")
            axis.set_ylabel(name, fontsize=8)
            axis.set_ylim(0, None)
        axes[-1].set_xlabel("step")

    return _drawn(draw, height=4.6)


def split_svgs(run: RunData) -> dict[str, str]:
    """Time by batch shape: waiting for data, and the rest."""

    def draw(axis: "Axes") -> None:
        rows = time_split(run)
        names = [row.shape for row in rows]
        axis.barh(names, [row.rest for row in rows], color="C0", label="forward, backward, update")
        axis.barh(
            names,
            [row.data for row in rows],
            left=[row.rest for row in rows],
            color="C3",
            label="waiting for data",
        )
        axis.invert_yaxis()
        axis.set_xlabel("seconds")
        axis.legend(fontsize=8, frameon=False, labelcolor="linecolor")

    return _both(draw, height=1.2 + 0.32 * max(1, len(time_split(run))))


def _both(draw: "Callable[[Axes], None]", height: float = 3.4) -> dict[str, str]:
    return _drawn(lambda figure: draw(figure.subplots()), height)


def _drawn(draw: "Callable[[Figure], None]", height: float) -> dict[str, str]:
    """The picture in both themes, as the inside of a page."""
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    made = {}
    for theme, (text, line, colours) in _THEMES.items():
        # Text stays text: it can be searched, and takes the page's font.
        style: Any = {"svg.fonttype": "none", "svg.hashsalt": theme, "font.size": 9, "axes.edgecolor": line}
        style |= {"axes.prop_cycle": cycler(color=colours)}
        style |= {key: text for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")}
        style |= {"axes.spines.top": False, "axes.spines.right": False, "font.family": "sans-serif"}
        with rc_context(style):
            figure = Figure(figsize=(7.6, height), layout="constrained")
            figure.patch.set_alpha(0)
            draw(figure)
            for axis in figure.axes:
                axis.patch.set_alpha(0)
                axis.grid(color=line, linewidth=0.5, alpha=0.6)
                axis.set_axisbelow(True)
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata={"Date": None})
        svg = file.getvalue()
        made[theme] = svg[svg.index("<svg") :]
    return made
