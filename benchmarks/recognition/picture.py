"""Both sets in one picture: accuracy on test against processor time, every plan at every length.

Usage: python picture.py OUT.png SET=RESULTS.jsonl...   The files are what `vcycle compare` writes.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.figure import Figure

COLORS = {
    "constant": "tab:gray",
    "control:cascade": "tab:olive",
    "long": "tab:orange",
    "short": "tab:purple",
    "long+short": "tab:red",
    "cascade": "tab:blue",
}


def points(file: Path) -> dict[str, list[tuple[float, float, float]]]:
    """For each plan, (CPU seconds, mean accuracy, its standard deviation over seeds) at each of its lengths."""
    arms: dict[tuple[str, str], list[dict]] = {}
    for line in file.read_text().splitlines():
        run = json.loads(line)
        arms.setdefault((run["arm"].partition("@")[0], run["arm"]), []).append(run)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for (plan, _), runs in arms.items():
        accuracy = [100 * run["test"] for run in runs]
        spread = stdev(accuracy) if len(runs) > 1 else 0.0
        found.setdefault(plan, []).append((fmean(r["cpu_seconds"] for r in runs), fmean(accuracy), spread))
    return {plan: sorted(at) for plan, at in found.items()}


figure = Figure(figsize=(10, 4.2), layout="constrained")
sets = [argument.partition("=") for argument in sys.argv[2:]]
for axis, (name, _, file) in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
    found = points(Path(file))
    for plan, color in COLORS.items():
        if plan in found:
            seconds, mean, spread = zip(*found[plan], strict=True)
            axis.errorbar(seconds, mean, yerr=spread, color=color, marker="o", markersize=4, capsize=2, label=plan)
    axis.set_xscale("log")
    axis.set_xticks(ticks := [5, 10, 20, 50, 100, 200], [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set(title=name, xlabel="processor time of training (s)", ylabel="accuracy on test (%)")
    axis.grid(alpha=0.3)
    axis.margins(y=0.15)
handles = {plan: line for axis in figure.axes for line, plan in zip(*axis.get_legend_handles_labels(), strict=True)}
figure.legend(
    handles.values(),
    handles.keys(),
    loc="outside right center",
    fontsize=8,
    title="mean ± sd over seeds\n(no bar: one seed)",
    title_fontsize=7,
)
figure.savefig(sys.argv[1], dpi=110)
