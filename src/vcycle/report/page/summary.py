"""Summarizes runs as rows of text, for the HTML page and for Markdown."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from vcycle.report.page.runs import RunData, shown
from vcycle.utils.units import duration

__all__ = ["environment_rows", "not_evaluated", "protocols", "summary_rows"]

_APART = ("step", "command", "folder")
"""Keys of an environment that are shown elsewhere."""
_MACHINE = ("device", "ranks", "processor", "cores", "threads", "system")


def summary_rows(runs: Sequence[RunData]) -> list[list[str]]:
    """A header row, and a row for each run."""
    rows = [["run", "plan", "steps", "samples", "training time", "validation", "evaluations", "bad samples"]]
    for run in runs:
        last = shown(run, run.validations[-1]["evaluation"]) if run.validations else "–"
        found = [f"{one['split']} {shown(run, one)}" for one in run.evaluations]
        taken = len(run.steps)
        samples = sum(line["batch"] for line in run.steps)
        rows.append(
            [
                run.name,
                run.plan,
                f"{taken:,}" if run.finished else f"{taken:,} of {run.planned_steps:,}",
                f"{samples:,}",
                duration(run.seconds),
                last,
                "; ".join(found) or "–",
                f"{len(run.bad):,}",
            ]
        )
    return rows


def protocols(runs: Sequence[RunData]) -> list[str]:
    """A line for each evaluation protocol; runs with the same protocol share a line."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for one in run.evaluations:
            found.setdefault((one["split"], one["protocol"]), []).append(run.name)
    return [f"{split} ({', '.join(names)}): {protocol}" for (split, protocol), names in found.items()]


def not_evaluated(runs: Sequence[RunData]) -> list[str]:
    """A line that says what to run for the results of runs without an evaluation; none if all have one."""
    missing = [run for run in runs if not run.evaluations]
    if not missing:
        return []
    folder = shlex.quote(missing[0].folder) if len(missing) == 1 else "RUN"
    return [
        f"No evaluation ({', '.join(run.name for run in missing)}): run `vcycle eval {folder}` first, and report again "
        "for its results by class or clip and the worst mistakes"
    ]


def environment_rows(run: RunData) -> list[list[str]]:
    """A header row, and a row for each environment of the run."""
    rows = [["from step", "machine", "versions"]]
    for found in run.environments:
        machine = [f"{key} {found[key]}" for key in _MACHINE if key in found]
        rows.append([f"{found['step']:,}", ", ".join(machine), _versions(found)])
    return rows


def _versions(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in found.items() if key not in _APART + _MACHINE)
