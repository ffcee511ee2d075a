"""What a training reports and leaves behind: steps, validations, totals."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

from torch import nn

from vcycle.plan import Step

__all__ = ["Evaluation", "Fitted", "Point", "StepReport", "Totals"]


class Evaluation(Protocol):
    """What a task's evaluation found: a dataclass of plain data, with these besides."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def measure(self) -> str:
        """Name of the number that it is about."""
        ...

    @property
    def value(self) -> float:
        """That number: higher is better."""
        ...

    @property
    def headline(self) -> str:
        """Both in words, with the unit."""
        ...

    @property
    def protocol(self) -> str:
        """How it was measured; a field of the dataclass, as reports show it."""
        ...

    @property
    def numbers(self) -> Mapping[str, float]:
        """All numbers that are worth a curve, by name."""
        ...


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
    loss: float | None = None
    """The newest loss that has been read back from the device: on a GPU, of up to 10 steps before; None before that."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A validation: after how many steps, samples and seconds of training, and what was found."""

    step: int
    samples: int
    seconds: float
    evaluation: Evaluation
    stage: Evaluation | None = None
    """What was found at the shape of the stage just trained, where that was asked for and is not the full shape."""
    stage_shape: str | None = None
    """That shape, such as `8×112²`."""


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
    skipped: int = 0
    """Updates that were not made because they would not have been finite."""
    skipped_in_row: int = 0
    """How many of these were the last."""
    unevaluated: bool = False
    """Whether a wish to end has cut short what is due after the last step: a resumed run begins with it."""

    @property
    def best(self) -> Point | None:
        """The validation of the highest value, the first of equals; None before one that is a number."""
        known = [point for point in self.curve if not math.isnan(point.evaluation.value)]
        return max(known, key=lambda point: point.evaluation.value, default=None)

    def as_data(self) -> dict[str, Any]:
        """The totals as plain data, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any], evaluation: Callable[..., Evaluation]) -> "Totals":
        """The totals that `as_data` gave.

        Args:
            data: Plain data.
            evaluation: Makes an evaluation of its fields.
        """

        def restored(point: dict[str, Any]) -> Point:
            found = {key: evaluation(**point[key]) for key in ("evaluation", "stage") if point.get(key) is not None}
            return Point(**{**point, **found})

        return cls(**{**data, "curve": [restored(point) for point in data["curve"]]})


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
    skipped: int
    curve: list[Point]
    waiting: dict[str, dict[str, float]]
