"""What a training tells and leaves behind: steps, validations, totals."""

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from vcycle.plan import Step
from vcycle.tasks.recognition import Evaluation

__all__ = ["Fitted", "Point", "StepReport", "Totals"]


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What happened in a step."""

    step: Step
    work: float
    """Work of the step, in steps of the baseline (voxels)."""
    data_seconds: float
    """How long the batch was waited for."""
    seconds: float
    """How long the whole step took."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A validation: after how many steps, samples and seconds of training, and what was found."""

    step: int
    samples: int
    seconds: float
    evaluation: Evaluation


@dataclass(kw_only=True)
class Totals:
    """Running totals of a run, over all the processes that it took."""

    seen: int = 0
    """Samples trained on."""
    replaced: int = 0
    """Samples that could not be read and were replaced."""
    seconds: float = 0.0
    """Training time: data, forward, backward and update; not validation, not checkpoints."""
    cpu_seconds: float = 0.0
    """Processor time of the training process in it."""
    data_seconds: float = 0.0
    """How much of the training time was waiting for data."""
    curve: list[Point] = field(default_factory=list)
    """The validations."""
    waiting: dict[str, dict[str, float]] = field(default_factory=dict)
    """For each batch shape its `steps`, their `seconds`, and the `data_seconds` of these."""

    def as_data(self) -> dict[str, Any]:
        """The totals as plain data, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Totals":
        """The totals that `as_data` gave."""
        curve = [Point(**{**point, "evaluation": Evaluation(**point["evaluation"])}) for point in data["curve"]]
        return cls(**{**data, "curve": curve})


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The outcome of a training; times and counts are as in `Totals`."""

    model: nn.Module
    steps: int
    samples: int
    seconds: float
    cpu_seconds: float
    data_seconds: float
    replaced: int
    curve: list[Point]
    waiting: dict[str, dict[str, float]]
