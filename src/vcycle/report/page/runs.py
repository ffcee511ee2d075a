"""The data of a run for the page, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from vcycle.tasks.base import Measure
from vcycle.tasks.details import Detail

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

__all__ = ["RunData", "ShownEvaluation", "Waits", "measure", "points", "reference", "shown", "time_split"]


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The contents of a run's folder."""

    name: str
    """Its name on the page."""
    folder: str
    recipe: Mapping[str, Any]
    """The resolved recipe."""
    plan: str
    """The plan's name."""
    stages: Sequence[Mapping[str, Any]]
    """Name, steps, frames, size and batch of each stage."""
    measures: Sequence[Measure]
    """The measures of its task."""
    planned_steps: int
    summary: str
    """One line: the plan, and its saving over the baseline."""
    steps: Sequence[Mapping[str, Any]]
    """The step lines of the log."""
    validations: Sequence[Mapping[str, Any]]
    """The validation lines of the log."""
    notes: Sequence[str]
    """Messages of the log about waiting for data."""
    bad: Sequence[Mapping[str, Any]]
    """The journal of replaced samples."""
    evaluations: Sequence[Mapping[str, Any]]
    """Results of `vcycle eval`: split, protocol, numbers."""
    shown: "Sequence[ShownEvaluation]" = ()
    """What the task shows of the evaluations beside their numbers."""
    environments: Sequence[Mapping[str, Any]] = ()
    """Its environment at each start and resume: step, command, machine, versions."""

    @property
    def seconds(self) -> float:
        """Training time of the steps in the log."""
        return sum((float(line["seconds"]) for line in self.steps), 0.0)

    @property
    def finished(self) -> bool:
        """Whether the last step is done."""
        return bool(self.steps) and self.steps[-1]["step"] + 1 >= self.planned_steps


@dataclass(frozen=True, kw_only=True)
class ShownEvaluation:
    """What a page shows of an evaluation beside its numbers."""

    split: str
    protocol: str
    details: Sequence[Detail]
    frames: "Mapping[str, NDArray[uint8]]"
    """Frames of the items in `details`, as far as they could be read: uint8 `(frames, height, width, 3)`."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Time and memory of the steps of one batch shape, times in seconds."""

    shape: str
    steps: int
    clips: int
    data: float
    rest: float
    memory_mib: int
    """Peak memory up to the last of these steps."""


def points(run: RunData) -> list[tuple[float, float]]:
    """Training seconds and the main measure (shares in percent) of each validation."""
    found = []
    for line in run.validations:
        about, value = measure(run, line["evaluation"])
        if about is not None:
            found.append((float(line["seconds"]), value * about.scale))
    return found


def measure(run: RunData, evaluation: Mapping[str, Any]) -> tuple[Measure | None, float]:
    """The measure of an evaluation and its value; if it has several, the last one of the task."""
    for known in reversed(run.measures):
        value = evaluation.get(known.key)
        if isinstance(value, int | float):
            return known, float(value)
    return None, nan


def reference(run: RunData, evaluation: Mapping[str, Any]) -> tuple[str, float] | None:
    """Name and value (shares in percent) of what an evaluation measured without training, if it did."""
    about, _ = measure(run, evaluation)
    value = None if about is None else about.reference_in(evaluation)
    return None if about is None or value is None else (about.reference, value * about.scale)


def shown(run: RunData, evaluation: Mapping[str, Any]) -> str:
    """Format the result of an evaluation, followed by that without training if it was measured."""
    about, value = measure(run, evaluation)
    if about is None:
        return "–"
    plain = about.reference_in(evaluation)
    beside = "" if plain is None else f" ({about.reference} {about.text(plain)})"
    return f"{about.text(value)}{beside}".replace(" %", "%")


def time_split(run: RunData) -> list[Waits]:
    """Time by batch shape, in order of first use."""
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
