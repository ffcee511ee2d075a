"""Shows a plan: a table of its stages, rows of its steps, and a figure of shapes, batch and LR.

matplotlib is imported on use: a plan itself needs only the standard library.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from textwrap import wrap
from typing import TYPE_CHECKING

from vcycle.plan.arguments import check_cost
from vcycle.plan.colors import color_of
from vcycle.plan.shape import BatchShape
from vcycle.utils.extras import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vcycle.plan.schedule import Plan, Stage

__all__ = ["mark_values", "plan_figure", "plan_rows", "plan_text", "summary"]

Cost = Callable[[BatchShape], float]
"""Work of one step at a batch shape."""

_WIDE = 10
"""The LR axis is logarithmic if the LRs of stages differ by more than this factor."""


def summary(plan: "Plan", cost: Cost | None = None) -> str:
    """One line: length, samples, and the savings over the baseline in steps and in work (by default voxels)."""
    steps, work = _saving(plan, cost)
    than = "than" if work[0].isdigit() else "as"
    return f"{_length(plan)}: {steps} steps, {work} work {than} the baseline's {_baseline(plan)}"


def plan_text(plan: "Plan", cost: Cost | None = None) -> str:
    """The stages as a table in plain text, one line each, with the summary below.

    Args:
        plan: The plan.
        cost: Work of one step at a batch shape, in any unit; by default voxels, times the tokens that are kept.
    """
    check_cost(cost)
    tokens = ("tokens",) if plan.drops_tokens else ()
    rows = [
        ("stage", "steps", "epoch", "frames", "size", *tokens, "batch", "BN", "LR", "work"),
        *(_row(plan, stage, first, cost) for stage, first in zip(plan.stages, _edges(plan), strict=False)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    width = max(map(len, lines)) + 1
    return "\n".join(
        [
            *wrap(f"plan {plan.name} ({plan.fingerprint})", width),
            "",
            lines[0],
            " " + "─" * (width - 2),
            *lines[1:],
            "",
            *(line for text in (summary(plan, cost), *plan.notes, *_repeats(plan)) for line in wrap(text, width)),
        ]
    )


def _repeats(plan: "Plan") -> Iterator[str]:
    """A line for each stage whose shape was given twice in succession."""
    for before, stage in pairwise(plan.stages):
        if (stage.name, stage.pattern, stage.rate) == (before.name, before.pattern, before.rate):
            yield f"stage {stage.name} repeats the one before it: the same shape, batch and LR"


def _row(plan: "Plan", stage: "Stage", first: int, cost: Cost | None) -> tuple[str, ...]:
    """The cells of a stage that starts at the step `first`."""
    pattern = stage.pattern
    cost = cost or (lambda cell: cell.work)
    work = sum(map(cost, pattern)) / len(pattern) / cost(plan.baseline_shape)
    return (
        stage.name,
        f"{stage.steps:,}",
        f"{plan.epochs_before(first):.4g}",
        f"{stage.base.frames}",
        _each([cell.size for cell in pattern]),
        *([f"{stage.base.tokens:.3g}"] if plan.drops_tokens else []),
        _each([cell.batch for cell in pattern]),
        _each([cell.bn_batch for cell in pattern]),
        _lr(stage),
        f"{work:.2f}",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A line of the table: names to the left, numbers to the right."""
    numbers = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return " " + "  ".join([cells[0].ljust(widths[0]), *numbers])


def plan_rows(plan: "Plan") -> Iterator[dict[str, int | float | str]]:
    """Every step as a flat row; see `Plan.rows`."""
    roles, dropping = sorted(plan.baseline.roles), plan.drops_tokens
    for step in plan:
        yield {
            "step": step.index,
            "epoch": step.first_sample / plan.baseline.clips,
            "stage": plan.stages[step.stage].name,
            "frames": step.shape.frames,
            "height": step.shape.height,
            "width": step.shape.width,
            **({"tokens": step.tokens} if dropping else {}),
            "batch": step.batch,
            "bn_batch": step.bn_batch,
            "lr": step.lr,
            **{f"lr_{role}": step.lr_of(role) for role in roles},
            "first_sample": step.first_sample,
            "samples": step.first_sample + step.batch,
        }


def plan_figure(plan: "Plan", cost: Cost | None = None) -> "Figure":
    """Shapes, batch and LR over samples, as in Wu et al. 2020, figure 2; the title has the savings.

    A plan has its own color, as in every figure: see `vcycle.plan.colors`.

    Args:
        plan: The plan.
        cost: Work of one step at a batch shape, as in `plan_text`.
    """
    figure = new_figure(figsize=(8, 6.4), layout="constrained")
    rows = figure.subplots(5 if plan.drops_tokens else 4, 1, sharex=True)
    title = "{}: {} steps, {} work".format(plan.name, *_saving(plan, cost))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    subtitle = f"{_length(plan)}; baseline {_baseline(plan)}"
    rows[0].set_title(subtitle, loc="left", fontsize=9, color="0.35")
    _draw_stages(rows[0], plan, "frames", lambda cell: cell.frames)
    _draw_stages(rows[1], plan, "size (pixels)", lambda cell: cell.size)
    _draw_stages(rows[2], plan, "batch (clips)", lambda cell: cell.batch)
    if plan.drops_tokens:
        _draw_stages(rows[3], plan, "tokens (%)", lambda cell: round(100 * cell.tokens))
    _draw_lr(rows[-1], plan)
    edges = [plan.epochs_before(step) for step in _edges(plan)]
    for axis in rows:
        for edge in edges[1:-1]:
            axis.axvline(edge, color="0.9", linewidth=0.8, zorder=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
    rows[-1].set_xlabel("samples seen (epochs)")
    figure.align_ylabels(rows)
    if any(len(set(stage.pattern)) > 1 for stage in plan.stages):
        rows[1].legend(loc="lower right", ncols=2, fontsize=8, framealpha=0.9, edgecolor="none")
    return figure


def _length(plan: "Plan") -> str:
    return f"{len(plan):,} steps, {plan.samples:,} samples ({plan.epochs:.4g} epochs)"


def _baseline(plan: "Plan") -> str:
    return f"{plan.baseline.total_steps:,} steps of {plan.baseline_shape}"


def _saving(plan: "Plan", cost: Cost | None = None) -> tuple[str, str]:
    """The steps and the work of a plan relative to its baseline, as text."""
    saving = plan.saving(cost)
    return _times(saving.steps, "fewer", "the same number of", "more"), _times(saving.work, "less", "the same", "more")


def _times(ratio: float, below: str, alike: str, above: str) -> str:
    if f"{ratio:.2f}" == "1.00":
        return alike
    return f"{ratio:.2f}× {below}" if ratio > 1 else f"{1 / ratio:.2f}× {above}"


def _edges(plan: "Plan") -> list[int]:
    """The first step of each stage, and the plan's end."""
    return list(accumulate((stage.steps for stage in plan.stages), initial=0))


def _draw_stages(axis: "Axes", plan: "Plan", label: str, value: Callable[[BatchShape], int]) -> None:
    """Draw a line at each stage's base shape, and a band over the range of its short cycle."""
    color = color_of(plan.name)
    edges = [plan.epochs_before(step) for step in _edges(plan)]
    base = [value(stage.base) for stage in plan.stages]
    least = [min(map(value, stage.pattern)) for stage in plan.stages]
    most = [max(map(value, stage.pattern)) for stage in plan.stages]
    axis.stairs(base, edges, baseline=None, color=color, linewidth=1.8, label="base shape")
    if least != most:
        axis.stairs(most, edges, baseline=least, fill=True, color=color, alpha=0.2, label="short cycle")
    axis.set_ylabel(label)
    mark_values(axis, [value(cell) for stage in plan.stages for cell in stage.pattern])


def mark_values(axis: "Axes", values: Iterable[int], *, gap: float = 0.1) -> None:
    """Put the ticks of a vertical axis at the values that occur; the axis is logarithmic if they are far apart.

    Args:
        axis: The axes.
        values: Numbers above 0.
        gap: Least distance of two ticks, as a share of the axis. Ticks that are closer are left out, but for the ends.
    """
    found = sorted(set(values))
    place: Callable[[float], float]
    if found[-1] > 4 * found[0]:
        axis.set_yscale("log", base=2)
        low, high, place = found[0] / 1.3, found[-1] * 1.3, math.log
    else:
        low, high, place = 0.0, found[-1] * 1.15, float
    axis.set_ylim(low, high)
    kept = _apart(found, gap * (place(high) - place(low)), place)
    axis.set_yticks(kept, [f"{value:,}" for value in kept], minor=False)
    axis.minorticks_off()


def _draw_lr(axis: "Axes", plan: "Plan", points: int = 300) -> None:
    steps = [
        first + (stage.steps - 1) * k // (points - 1)
        for stage, first in zip(plan.stages, _edges(plan), strict=False)
        for k in range(points)
    ]
    rates = [plan[step].lr for step in steps]
    epochs = [plan.epochs_before(step) for step in steps]
    # The LR of a step holds until the next step, that of the last step until the end.
    axis.stairs(rates, [*epochs, plan.epochs], baseline=None, color=color_of(plan.name), linewidth=1.8)
    axis.set_ylabel("learning rate")
    # Only the LRs of stages decide the axis: warmup and the tail of a cosine are near 0 in every plan.
    peaks = [peak for stage in plan.stages if (peak := stage.rate.at(0.0)) > 0] or [max(rates)]
    if max(peaks) > _WIDE * min(peaks):
        axis.set_yscale("log")
        axis.set_ylim(min(peaks) / 3, max(peaks) * 2)
    else:
        axis.set_ylim(0, max(rates) * 1.15)


def _apart(values: Sequence[int], gap: float, place: Callable[[float], float]) -> list[int]:
    """The first and the last of the sorted values, and of those between as many as are a gap apart at their places."""
    first, last = values[0], values[-1]
    kept = [last]
    for value in reversed(values[1:-1]):
        if place(kept[-1]) - place(value) >= gap and place(value) - place(first) >= gap:
            kept.append(value)
    return sorted({first, *kept})


def _each(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(set(values)) == 1 else " ".join(map(str, values))


def _lr(stage: "Stage") -> str:
    rates = [stage.rate.at(percent / 100) for percent in range(101)]
    peak = [max(rates)] if max(rates) > max(rates[0], rates[-1]) else []  # a curve may rise and fall
    shown = [f"{rate:.3g}" for rate in (rates[0], *peak, rates[-1])]
    return shown[0] if len(set(shown)) == 1 else "→".join(shown)
