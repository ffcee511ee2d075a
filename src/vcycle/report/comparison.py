"""Renders a comparison: a table, statements, and a figure of accuracy against training time."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from vcycle.plan.colors import plan_styles
from vcycle.report.spread import GAP, narrow
from vcycle.utils.extras import new_figure
from vcycle.utils.units import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = [
    "clock_of",
    "comparison_figure",
    "comparison_note",
    "comparison_rows",
    "comparison_table",
    "draw_comparison",
    "failed",
    "label_of",
    "reference_line",
    "statements",
]


_AT_CHANCE = "†"
"""Marks the value of a plan that does not beat what needs no training."""


def clock_of(data: Mapping[str, Any]) -> str:
    """What the training times of a comparison are by; with the machine, if a training ran on another one."""
    clock = data.get("clock", {})
    if "reason" in clock:
        return f"by the {clock['clock']}"
    return "by steps timed in turns" + (f" on {_where(clock)}" if clock.get("elsewhere") else "")


def _where(clock: Mapping[str, Any]) -> str:
    return f"{clock['device']} ({clock['machine'].get('processor')}, {clock['machine'].get('cores')} cores)"


def comparison_table(data: Mapping[str, Any], title: str) -> "Table":
    """The table of a comparison (from `Comparison.as_data`), one row per arm."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), box=box.SIMPLE_HEAD, padding=GAP, pad_edge=False)
    head, *rows = comparison_rows(data)
    for place, column in enumerate(head):
        # Words of a header stand below each other; the cells of a row stay on one line.
        table.add_column(narrow(column), no_wrap=True, justify="right" if place else "left")
    for name, *cells in rows:
        best = name == data["plan"] and _learned(data["arms"][name])
        table.add_row(f"[bold]{name}[/bold]" if best else name, *cells)
    table.caption = comparison_note(data)
    return table


def comparison_rows(data: Mapping[str, Any]) -> list[list[str]]:
    """A header row and a row for each arm: times, steps, samples, the value with its deviation, and the speed-ups."""
    measure, target = data["measure"], data["target"]
    head = ["plan", "train time", "wall clock", "steps", "samples", f"{measure['words']} ({data['split']})"]
    head += ["vs constant", "vs its control"]
    if target is not None:
        head.append(f"to {_text(measure, target)} (val)")
    rows = [head]
    for name, arm in data["arms"].items():
        rows.append(
            [
                name,
                duration(arm["train_seconds"]),
                duration(arm["wall_seconds"]),
                f"{arm['steps']:,}",
                f"{arm['samples']:,}",
                _ended(data, arm),
                _speedup(arm.get("over_constant")),
                _speedup(arm.get("over_control")),
                *([] if target is None else [_soon(arm["to_target"])]),
            ]
        )
    if (reference := _reference(data)) is not None:
        value = _text(measure, reference["value"])
        rows.append([reference["name"], *[""] * 4, value, *[""] * (len(head) - 6)])
    return rows


def comparison_note(data: Mapping[str, Any]) -> str:
    """What the numbers of the table are: means, deviations, clocks."""
    seeds = {arm["seeds"] for arm in data["arms"].values()}
    most = max(seeds)
    over = f"mean over {'up to ' * (len(seeds) > 1)}{most} seeds, ± standard deviation" if most > 1 else "one seed"
    note = f"{over}; 2× means half the training time, {clock_of(data)}; wall clock: of the trainings themselves"
    gains = [arm.get(key) for arm in data["arms"].values() for key in ("over_constant", "over_control")]
    if any(gain is not None and gain["clocks_disagree"] for gain in gains):
        note += "; *: which disagrees by more than 10%"
    reference = _reference(data)
    if reference is not None and not all(map(_learned, data["arms"].values())):
        note += f"; {_AT_CHANCE}: not above {reference['name']}"
    return note


def _ended(data: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """A plan's final value, with the standard deviation if there are several seeds."""
    measure = data["measure"]
    spread = f" ± {_number(measure, arm['value_std'])}" if arm["seeds"] > 1 else ""
    mark = "" if _reference(data) is None or _learned(arm) else _AT_CHANCE
    return f"{_text(measure, arm['value'])}{spread}{mark}"


def _reference(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the reported split gives without training, if the task knows."""
    found: Mapping[str, Any] | None = (data.get("references") or {}).get(data["split"])
    return found


def _learned(arm: Mapping[str, Any]) -> bool:
    """Whether a plan beats what needs no training, as far as that is known."""
    return arm.get("beats_reference") is not False


def _no_better(data: Mapping[str, Any]) -> str | None:
    """A statement if no plan, or not even the best one, beats what needs no training; else None."""
    reference, best = _reference(data), data["plan"]
    if reference is None:
        return None
    measure, split = data["measure"], {"val": "validation", "test": "test"}[data["split"]]
    words, items = reference["words"], f"{split} {measure['samples']}"
    words += "" if reference["trials"] is None else f" of {reference['trials']:,} {items}"
    named = f"{reference['name']} ({_text(measure, reference['value'])}: {words})"
    if any(_learned(arm) for arm in data["arms"].values()):
        return None if best is None or _learned(data["arms"][best]) else f"{best} did not beat {named}"
    advice = reference["advice"]
    if any(arm["value"] > reference["value"] for arm in data["arms"].values()):
        advice += f"; more {items} show smaller gains"
    return f"no plan beat {named}, so their times cannot be compared: {advice}"


def statements(data: Mapping[str, Any]) -> list[str]:
    """The best plan's speed-up over the constant shape and its control, and the time to the target of all three.

    If no plan beats what needs no training, only that is stated.
    """
    best, measure = data["plan"], data["measure"]
    said = [] if (line := _no_better(data)) is None else [line]
    if best is None or not any(_learned(arm) for arm in data["arms"].values()):
        return said
    for key, other in (("over_constant", "the constant shape"), ("over_control", "its LR-matched control")):
        gain = data["arms"][best].get(key)
        if gain is None:
            continue
        length: str = data["constant"] if key == "over_constant" else data["control"]
        other += f" ({length})" if "@" in (length or "") else ""
        text = f"{best} trains {_faster(gain['speedup'])} ({_clocks(gain)}) than {other}"
        if (difference := _difference(measure, gain)) is not None:
            text += f"; {measure['words']} {difference}"
        said.append(f"{text}; {_verdict(data, gain)}")
        if gain["clocks_disagree"]:
            said.append(_disagreement(data, best, length))
    if said and (line := _caveat(data)) is not None:
        said.append(line)
    if data["target"] is not None:
        of = f", what {data['target_of']} ends at" if data["target_of"] else ""
        arms = [name for name in (best, data["constant"], data["control"]) if name is not None]
        times = "; ".join(f"{name} {_soon_in_words(data['arms'][name]['to_target'])}" for name in arms)
        said.append(f"to {_text(measure, data['target'])} on validation{of}: {times}")
    return said


def _caveat(data: Mapping[str, Any]) -> str | None:
    """A statement if the times are not by steps, or by those of another machine than a training's; else None."""
    clock = data.get("clock", {})
    if "reason" in clock:
        return f"these times are {clock_of(data)}, which other programs change: steps were not timed, {clock['reason']}"
    if clock.get("elsewhere"):
        return f"these times are {clock_of(data)}; a training of the study ran elsewhere"
    return None


def failed(data: Mapping[str, Any]) -> list[str]:
    """A line for each failed run, with the reason."""
    return [
        f"{f['arm']}, seed {f['seed']} failed and is excluded: {f['failed']}; the same command retries it"
        for f in data["failures"]
    ]


def comparison_figure(data: Mapping[str, Any]) -> "Figure":
    """Plot the measure on validation against training time (mean and range over seeds), and the final values.

    Final values are on the test split if there is one, in a separate panel: the two splits may differ in difficulty.
    That panel leaves out what needs no training, so that it shows how the plans differ.
    """
    tested = data["split"] == "test"
    figure = new_figure(figsize=(8, 4.5), layout="constrained")
    ratios = (2, 1) if tested else (1,)
    axes = figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
    draw_comparison(data, axes, where="right")
    # Matplotlib does not wrap titles; a long one would be cut off.
    said = [line for text in _in_short(data) for line in wrap(text, 126)]
    figure.suptitle("\n".join(said), fontsize=8.5, x=0.01, ha="left", linespacing=1.4)
    return figure


def draw_comparison(data: Mapping[str, Any], axes: "Sequence[Axes]", *, where: str) -> None:
    """Draw the curves of a comparison on the first axes, and the final values on the last, as `comparison_figure`.

    Args:
        data: The comparison.
        axes: Two axes if the values are on the test split, else one.
        where: Where the last one is: `right`, `below`.
    """
    measure, tested = data["measure"], data["split"] == "test"
    scale = measure["scale"]
    curves, ends = axes[0], axes[-1]
    for (name, arm), style in zip(data["arms"].items(), plan_styles(data["arms"]), strict=True):
        points = _common([r for r in data["runs"] if r["arm"] == name])
        seconds = [fmean([taken for taken, _ in column]) for column in points]
        values = [[scale * value for _, value in column] for column in points]
        width = 2.5 if name == data["plan"] else 1.3
        lost = sum(f["arm"] == name for f in data["failures"])
        label = f"{name} ({lost} run{'s' * (lost > 1)} failed)" if lost else name
        middle, low, high = ([of(column) for column in values] for of in (fmean, min, max))
        curves.plot(seconds, middle, linewidth=width, markersize=4, label=label, **style.line)
        band = 0.07 if style.is_control else 0.15
        curves.fill_between(seconds, low, high, color=style.color, alpha=band, linewidth=0)
        ends.errorbar(
            [arm["train_seconds"]],
            [scale * arm["value"]],
            yerr=[scale * arm["value_std"]],
            capsize=3,
            **style.line,
        )
    longest = max(arm["train_seconds"] for arm in data["arms"].values())
    splits = {curves: "validation", ends: "test" if tested else "validation"}
    for axis, split in splits.items():
        axis.set_xlabel(f"training time (s),\n{clock_of(data)}")
        axis.set_ylabel(label_of(measure, split))
        axis.set_xlim(0, max(axis.get_xlim()[1], 1.05 * longest))  # autoscaling leaves half a dot outside
        axis.grid(alpha=0.3)
    if data["target"] is not None:
        label = f"final value of {data['target_of']}" if data["target_of"] else "target"
        curves.axhline(scale * data["target"], color="grey", linewidth=1.2, linestyle=":", label=label)
    reference_line(curves, data, "val")
    # A page has no frame around a legend: lines behind it would cross its words.
    place: dict[str, Any] = {"loc": "lower right"}
    if where == "below":
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}
    curves.legend(
        **place,
        title=f"range over seeds\n{where if tested else 'dot'}: at the end, ± sd",
        fontsize=8,
        title_fontsize=7,
    )


def label_of(measure: Mapping[str, Any], split: str) -> str:
    """The label of an axis: the measure in full, the split and the unit."""
    words = measure["words"] if measure["name"] in measure["words"] else f"{measure['name']} {measure['words']}"
    return f"{words} on {split} ({measure['unit']})"


def reference_line(axis: "Axes", data: Mapping[str, Any], split: str) -> None:
    """Draw what a split gives without training as a dash-dotted line, if the task knows."""
    if (reference := (data.get("references") or {}).get(split)) is not None:
        value = data["measure"]["scale"] * reference["value"]
        axis.axhline(value, color="grey", linestyle="-.", linewidth=1, label=reference["name"])


def _in_short(data: Mapping[str, Any]) -> list[str]:
    """The best plan's gains, for the title of the figure."""
    best, measure = data["plan"], data["measure"]
    said = [] if (line := _no_better(data)) is None else [line]
    if not any(_learned(arm) for arm in data["arms"].values()):
        return said
    for key, other in (("over_constant", data["constant"]), ("over_control", data["control"])):
        gain = None if best is None else data["arms"][best].get(key)
        if gain is None:
            continue
        text = f"{best} vs {other}: {_faster(gain['speedup'])} ({_clocks(gain)})"
        if (measured := _measured(gain)) is not None:
            text += f", {_number(measure, measured, '+')} {measure['points']}"
            interval = next(iter(_intervals(measure, gain).values()), None)
            text += "" if interval is None else f" ({interval['confidence']:.0%} CI {_range(measure, interval)})"
        said.append(text)
    return said


def _number(measure: Mapping[str, Any], value: float, sign: str = "") -> str:
    """Format a value without its unit."""
    return f"{measure['scale'] * value:{sign}.{measure['digits']}f}"


def _text(measure: Mapping[str, Any], value: float) -> str:
    """Format a value with its unit."""
    return f"{_number(measure, value)} {measure['unit']}"


def _measured(gain: Mapping[str, Any]) -> float | None:
    """The difference of two plans; None for a single seed."""
    known = (gain[key] for key in ("paired", "difference") if gain[key] is not None)
    return next((float(interval["difference"]) for interval in known), None)


def _intervals(measure: Mapping[str, Any], gain: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The intervals of a difference, by method.

    An interval of zero width is dropped: all seeds gave the same value, which a few do by chance. If both are dropped,
    the interval over videos or clips replaces them.
    """
    samples = measure["samples"]
    methods = {"paired": f"paired bootstrap over seeds and {samples}", "difference": "Welch"}
    known = {words: gain[key] for key, words in methods.items() if gain[key] is not None}
    wide = {words: interval for words, interval in known.items() if _has_width(interval)}
    over = gain.get("clips")
    if not wide and over is not None and _has_width(over):
        return {f"Student over {samples}": over}
    return wide


def _has_width(interval: Mapping[str, Any]) -> bool:
    """Whether an interval has a width above rounding errors."""
    return bool(interval["high"] - interval["low"] > 1e-9)


def _range(measure: Mapping[str, Any], interval: Mapping[str, Any]) -> str:
    """The two ends of an interval, with enough decimals to differ."""
    low, high = (measure["scale"] * interval[end] for end in ("low", "high"))
    digits = measure["digits"]
    while f"{low:.{digits}f}" == f"{high:.{digits}f}" and digits < 6:
        digits += 1
    return f"{low:+.{digits}f} to {high:+.{digits}f}"


def _difference(measure: Mapping[str, Any], gain: Mapping[str, Any]) -> str | None:
    """A difference with its intervals; None for a single seed."""
    measured, known = _measured(gain), _intervals(measure, gain)
    if measured is None:
        return None
    difference = f"{_number(measure, measured, '+')} {measure['points']}"
    if not known:
        return f"{difference} (all seeds equal: no interval)"
    intervals = "; ".join(f"{_range(measure, interval)}, {words}" for words, interval in known.items())
    many = "s" * (len(known) > 1)
    confidence = next(iter(known.values()))["confidence"]
    return f"{difference} ({confidence:.0%} interval{many} {intervals})"


def _verdict(data: Mapping[str, Any], gain: Mapping[str, Any]) -> str:
    """The non-inferiority verdict: the margin, the videos that it is limited to, and why it is inconclusive."""
    measure, verdict = data["measure"], gain["no_worse"]
    size = f"{measure['scale'] * data['margin']:g}"
    lost = f"{size} {measure['points'].removesuffix('s') if size == '1' else measure['points']}"
    where = ""
    if verdict != "not shown" and gain["paired"] is None:
        selected = " (which also chose it)" if data["split"] == "val" else ""
        where = f" on these {measure['samples']} only{selected}"
    if verdict == "shown worse":
        return f"inferior (margin {lost}){where}: shown"
    doubts = {"failed": " (a run failed)", "few": f" (too few {measure['samples']})", None: ""}
    found = "inconclusive" if verdict == "not shown" else verdict
    return f"non-inferior (margin {lost}){where}: {found}{doubts[gain['doubt']]}"


def _soon(reach: Mapping[str, Any]) -> str:
    """The time to the target, for a table cell."""
    if not reach["reached"]:
        return "never"
    part = "" if reach["reached"] == reach["runs"] else f"{reach['reached']} of {reach['runs']}"
    return part if reach["median"] is None else duration(reach["median"]) + f" ({part})" * bool(part)


def _soon_in_words(reach: Mapping[str, Any]) -> str:
    """The time to the target, with the range over seeds."""
    if not reach["reached"]:
        return "never"
    if reach["runs"] == 1:
        return f"{reach['median']:.1f} s"
    part = f"{reach['reached']} of {reach['runs']} seeds, "
    if reach["median"] is None:
        return f"not by most ({part}the first after {reach['low']:.1f} s)"
    if reach["high"] is None:
        return f"{reach['median']:.1f} s (median; {part}the first after {reach['low']:.1f} s)"
    return f"{reach['median']:.1f} s (median; {reach['low']:.1f} to {reach['high']:.1f})"


def _common(runs: Sequence[Mapping[str, Any]]) -> list[list[tuple[float, float]]]:
    """Align the curves of all seeds by validation, which happen at the same steps: seconds and value of each."""
    curves = [
        [(seconds, point[2]) for seconds, point in zip(r["curve_seconds"], r["curve"], strict=True)] for r in runs
    ]
    return [list(column) for column in zip(*curves, strict=False)]


def _speedup(gain: Mapping[str, Any] | None) -> str:
    """A speed-up for a table cell: 2.50×, or 0.80× if it is slower; with a star if the wall clock disagrees."""
    return "" if gain is None else f"{gain['speedup']:.2f}×{'*' * gain['clocks_disagree']}"


def _faster(times: float) -> str:
    """A speed-up in words: 2.50× faster, or 1.25× slower."""
    return f"{times:.2f}× faster" if times >= 1 else f"{1 / times:.2f}× slower"


def _clocks(gain: Mapping[str, Any]) -> str:
    """The range of a speed-up over turns, and what the wall clock says."""
    known = [gain[key] for key in ("speedup_low", "speedup_high")]
    if gain["speedup"] < 1:
        known = [1 / value for value in reversed(known)]
    low, high = (f"{value:.2f}" for value in known)
    wall = (
        f"wall clock {gain['wall_speedup']:.2f}×"
        if gain["speedup"] >= 1
        else f"wall clock {1 / gain['wall_speedup']:.2f}×"
    )
    spread = "" if low == high else f"{low} to {high}; "
    return f"{spread}{wall}{', which disagrees' if gain['clocks_disagree'] else ''}"


def _disagreement(data: Mapping[str, Any], best: str, other: str) -> str:
    """A statement that the wall-clock times of two plans' trainings say something else than their steps."""
    waits = ", ".join(f"{name} {_waited(data['arms'][name]):.0%}" for name in (best, other))
    return (
        f"the wall clock of the trainings of {best} and {other} disagrees by more than 10% and is not used: other "
        f"programs ran beside them, or data came late (waiting for data: {waits} of the wall-clock time)"
    )


def _waited(arm: Mapping[str, Any]) -> float:
    """The share of its wall-clock time that a plan waited for data."""
    return float(arm["data_seconds"] / arm["wall_seconds"]) if arm["wall_seconds"] else 0.0
