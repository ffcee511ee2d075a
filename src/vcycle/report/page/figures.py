"""Draws the figures of runs: as inline SVG in a light and a dark theme, or as files."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vcycle.plan.colors import color_of, plan_styles
from vcycle.plan.show import mark_values
from vcycle.report.comparison import label_of
from vcycle.report.page.runs import RunData, measure, points, reference, time_split
from vcycle.report.parts import COMPUTING, WAITING
from vcycle.tasks.details import Drawing
from vcycle.utils.extras import new_figure, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy", "drawn", "loss", "schedule", "split", "svgs"]

_THEMES = {"light": ("#1b1f24", "#d0d7de"), "dark": ("#e6edf3", "#3d444d")}
"""Colors of text and of grid lines. Those of plans are readable on either."""
_MOST_POINTS = 1500


_UNKNOWN = "measure on validation"
"""Axis label if no validation has a measure of the task."""


def accuracy(runs: Sequence[RunData]) -> Drawing:
    """The measure on validation against training time: a panel per measure, a line per run.

    A dash-dotted line marks what was measured without training, if it was.
    """
    panels: dict[str, list[RunData]] = {}
    for run in runs:
        if run.validations:
            about, _ = measure(run, run.validations[-1]["evaluation"])
            label = _UNKNOWN if about is None else label_of(asdict(about), "validation")
            panels.setdefault(label, []).append(run)
    panels = panels or {_UNKNOWN: []}
    styles = dict(zip((run.name for run in runs), plan_styles(run.plan for run in runs), strict=True))

    def draw(figure: "Figure") -> None:
        axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axis, (label, own) in zip(axes, panels.items(), strict=True):
            for run in own:
                found = points(run)
                at, values = [x for x, _ in found], [y for _, y in found]
                axis.plot(at, values, label=run.name, markersize=4, **styles[run.name].line)
            plain = {reference(run, run.validations[-1]["evaluation"]) for run in own}
            lines = sorted(line for line in plain if line is not None)
            for number, (name, value) in enumerate(lines):
                axis.axhline(value, color="grey", linestyle="-.", linewidth=1, label=name if number == 0 else None)
            axis.set_xlabel("training time (s)")
            axis.set_ylabel(label)
            axis.set_xlim(0, None)
            if (len(runs) > 1 and own) or lines:
                axis.legend(fontsize=8, frameon=False)

    return Drawing(draw=draw, height=2.8 * len(panels))


def loss(run: RunData) -> Drawing:
    """The training loss against the step."""

    def draw(axis: "Axes") -> None:
        lines = [line for line in run.steps if isinstance(line.get("loss"), int | float)]
        lines = lines[:: max(1, len(lines) // _MOST_POINTS)]
        axis.plot(
            [line["step"] for line in lines], [line["loss"] for line in lines], color=color_of(run.plan), linewidth=0.8
        )
        axis.set_xlabel("training step")
        axis.set_ylabel("training loss")

    return _alone(draw, height=2.2)


def schedule(run: RunData) -> Drawing:
    """Frames, size, batch and LR of every step; the ticks are the values that occur, as in the picture of a plan."""

    def draw(figure: "Figure") -> None:
        axes = figure.subplots(4, 1, sharex=True)
        lines = run.steps[:: max(1, len(run.steps) // _MOST_POINTS)]
        at = [line["step"] for line in lines]
        shown = {"frames": "frames", "size": "size (pixels)", "batch": "batch (clips)", "lr": "learning rate"}
        for axis, (key, name) in zip(axes, shown.items(), strict=True):
            values = [line[key] for line in lines]
            axis.plot(at, values, color=color_of(run.plan), linewidth=1.2, drawstyle="steps-post")
            axis.set_ylabel(name, fontsize=8)
            if key == "lr":
                axis.set_ylim(0, None)
            else:
                mark_values(axis, [line[key] for line in run.steps], gap=0.16)
        figure.align_ylabels(axes)
        axes[-1].set_xlabel("training step")

    return Drawing(draw=draw, height=4.6)


def split(run: RunData) -> Drawing:
    """Time by batch shape: waiting for data, and the rest."""
    rows = time_split(run)

    def draw(axis: "Axes") -> None:
        names = [row.shape for row in rows]
        axis.barh(names, [row.rest for row in rows], color=COMPUTING, label="forward, backward, update")
        left = [row.rest for row in rows]
        axis.barh(names, [row.data for row in rows], left=left, color=WAITING, label="waiting for data")
        axis.invert_yaxis()
        axis.set_xlabel("training time (s)")
        axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))

    return _alone(draw, height=1.2 + 0.28 * max(1, len(rows)))


def svgs(picture: Drawing) -> dict[str, str]:
    """A figure as inline SVG, by theme."""
    made = {}
    for theme in _THEMES:
        file = io.StringIO()
        with drawn(picture, theme) as figure:
            figure.patch.set_alpha(0)
            figure.savefig(file, format="svg", metadata={"Date": None})
        svg = file.getvalue()
        made[theme] = svg[svg.index("<svg") :]
    return made


@contextmanager
def drawn(picture: Drawing, theme: str = "light") -> "Iterator[Figure]":
    """Draw a figure; save it inside the block."""
    rc_context = require("matplotlib").rc_context
    text, line = _THEMES[theme]
    # Text stays text: it can be searched, and takes the page's font.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": theme, "font.size": 9, "axes.edgecolor": line}
    style |= {key: text for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")}
    style |= {
        "legend.framealpha": 0.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.family": "sans-serif",
    }
    with rc_context(style):
        layout = "constrained" if picture.grid else "compressed"  # pictures keep their aspect ratio
        figure = new_figure(figsize=(6, picture.height), layout=layout)
        picture.draw(figure)
        for axis in figure.axes:
            axis.patch.set_alpha(0)
            if picture.grid:
                axis.grid(color=line, linewidth=0.5, alpha=0.6)
            axis.set_axisbelow(True)
        yield figure


def _alone(draw: "Callable[[Axes], None]", height: float) -> Drawing:
    return Drawing(draw=lambda figure: draw(figure.subplots()), height=height)
