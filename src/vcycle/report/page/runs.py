"""A run as a page needs it: plain data, whoever read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from vcycle.tasks.base import Measure

__all__ = ["RunData", "Waits", "bicubic", "measure", "points", "shown", "time_split"]


@dataclass(frozen=True, kw_only=True)
class RunData:
    """What a run's folder tells."""

    name: str
    """What it is called on the page."""
    folder: str
    recipe: Mapping[str, Any]
    """The resolved recipe."""
    plan: str
    """The plan's name."""
    stages: Sequence[Mapping[str, Any]]
    """Of each stage: name, steps, frames, size, batch."""
    measures: Sequence[Measure]
    """What runs of its task are judged by."""
    planned_steps: int
    summary: str
    """What the plan is, and what it saves against its baseline, in a line."""
    steps: Sequence[Mapping[str, Any]]
    """The log's lines of steps."""
    validations: Sequence[Mapping[str, Any]]
    """The log's lines of validations."""
    notes: Sequence[str]
    """What the log says of waiting for data."""
    bad: Sequence[Mapping[str, Any]]
    """The journal of replaced samples."""
    evaluations: Sequence[Mapping[str, Any]]
    """What `vcycle eval` wrote: split, protocol, numbers."""
    environments: Sequence[Mapping[str, Any]] = ()
    """What it was carried out by, each time that it began or went on: step, command, machine, versions."""

    @property
    def seconds(self) -> float:
        """Training time of the steps in the log."""
        return sum((float(line["seconds"]) for line in self.steps), 0.0)

    @property
    def finished(self) -> bool:
        """Whether the last step was taken."""
        return bool(self.steps) and self.steps[-1]["step"] + 1 >= self.planned_steps


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What the steps of one batch shape took, times in seconds."""

    shape: str
    steps: int
    clips: int
    data: float
    rest: float
    memory_mib: int
    """The most that was in use until the last of these steps."""


def points(run: RunData) -> list[tuple[float, float]]:
    """Training seconds and the main measure, in percent or as it is, of each validation."""
    found = []
    for line in run.validations:
        about, value = measure(run, line["evaluation"])
        if about is not None:
            found.append((float(line["seconds"]), value * about.scale))
    return found


def measure(run: RunData, evaluation: Mapping[str, Any]) -> tuple[Measure | None, float]:
    """What an evaluation is about, and its value; of several measures the last that the evaluation has."""
    for known in reversed(run.measures):
        value = evaluation.get(known.key)
        if isinstance(value, int | float):
            return known, float(value)
    return None, nan


def bicubic(evaluation: Mapping[str, Any]) -> float | None:
    """The PSNR of bicubic interpolation that an evaluation of super-resolution states, in dB; None if infinite."""
    value = evaluation.get("bicubic_psnr")
    return float(value) if value is not None and isfinite(value) else None


def shown(run: RunData, evaluation: Mapping[str, Any]) -> str:
    """What an evaluation is about, for people; of PSNR with what bicubic interpolation reaches."""
    about, value = measure(run, evaluation)
    if about is None:
        return "–"
    beside = bicubic(evaluation)
    plain = "" if beside is None else f" (bicubic {beside:.2f} dB)"
    return about.text(value).replace(" %", "%") + plain


def time_split(run: RunData) -> list[Waits]:
    """Time by batch shape, in the order in which shapes first came."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for line in run.steps:
        lines.setdefault(f"{line['batch']}×{line['frames']}×{line['size']}²", []).append(line)
    return [
        Waits(
            shape=shape,
            steps=len(own),
            clips=sum(line["batch"] for line in own),
            data=sum(line["data_seconds"] for line in own),
            rest=sum(line["seconds"] - line["data_seconds"] for line in own),
            memory_mib=max(line["memory_mib"] for line in own),
        )
        for shape, own in lines.items()
    ]
