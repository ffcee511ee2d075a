"""The results of training: step reports, validations, totals."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

from torch import nn

from vcycle.plan import Step

__all__ = ["EvalResult", "StepReport", "Totals", "TrainResult", "ValidationResult"]


class EvalResult(Protocol):
    """The result of a task's evaluation: a dataclass of plain data with these properties."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def measure(self) -> str:
        """Name of the main metric."""
        ...

    @property
    def value(self) -> float:
        """Value of the main metric: higher is better."""
        ...

    @property
    def headline(self) -> str:
        """The main metric as text: name, value and unit."""
        ...

    @property
    def protocol(self) -> str:
        """How it was measured; a field of the dataclass, as reports show it."""
        ...

    @property
    def numbers(self) -> Mapping[str, float]:
        """All metrics to log, by name."""
        ...


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """The report of a step."""

    step: Step
    work: float
    """Work of the step, in steps of the baseline (voxels)."""
    data_seconds: float
    """Seconds spent waiting for the batch."""
    seconds: float
    """Seconds of the whole step."""
    loss: float | None = None
    """The newest loss that has been read back from the device, on a GPU up to 10 steps old; None before the first."""


@dataclass(frozen=True, kw_only=True)
class ValidationResult:
    """A validation: its result, and the steps, samples and seconds of training before it."""

    step: int
    samples: int
    seconds: float
    evaluation: EvalResult
    stage: EvalResult | None = None
    """The result at the shape of the stage just trained, if that was requested and is not the full shape."""
    stage_shape: str | None = None
    """The shape of the stage, such as `8×112²`."""


@dataclass(kw_only=True)
class Totals:
    """Running totals of a run, over all its starts and resumes."""

    seen: int = 0
    """Samples trained on."""
    replaced: int = 0
    """Samples that could not be read and were replaced."""
    seconds: float = 0.0
    """Training time: data, forward, backward and update; not validation, not checkpoints."""
    cpu_seconds: float = 0.0
    """Processor time of the training process during training time."""
    data_seconds: float = 0.0
    """Part of the training time spent waiting for data."""
    curve: list[ValidationResult] = field(default_factory=list)
    """The validations."""
    waiting: dict[str, dict[str, float]] = field(default_factory=dict)
    """For each batch shape its `steps`, their `seconds`, and the `data_seconds` of these."""
    skipped: int = 0
    """Updates skipped because the loss or a gradient was not finite."""
    skipped_in_row: int = 0
    """Skipped updates since the last update that was made."""
    unevaluated: bool = False
    """Whether a stop request interrupted the validation after the last step: a resumed run starts with it."""

    @property
    def best(self) -> ValidationResult | None:
        """The first validation with the highest value, ignoring NaN; None if there is none."""
        known = [point for point in self.curve if not math.isnan(point.evaluation.value)]
        return max(known, key=lambda point: point.evaluation.value, default=None)

    def as_data(self) -> dict[str, Any]:
        """The totals as plain data, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any], evaluation: Callable[..., EvalResult]) -> "Totals":
        """Rebuild the totals from `as_data`.

        Args:
            data: Plain data.
            evaluation: Makes an evaluation from its fields.
        """

        def restored(point: dict[str, Any]) -> ValidationResult:
            found = {key: evaluation(**point[key]) for key in ("evaluation", "stage") if point.get(key) is not None}
            return ValidationResult(**{**point, **found})

        return cls(**{**data, "curve": [restored(point) for point in data["curve"]]})


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of training; times and counts are as in `Totals`."""

    model: nn.Module
    """The model that was evaluated: with an EMA, the averaged weights. Sharded if training was."""
    steps: int
    samples: int
    seconds: float
    cpu_seconds: float
    data_seconds: float
    replaced: int
    skipped: int
    curve: list[ValidationResult]
    waiting: dict[str, dict[str, float]]
