"""The evaluation of a task: what it measures and how."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vcycle.errors import RecipeError
from vcycle.plan import Shape
from vcycle.tasks.base.part import F, Part, R
from vcycle.tasks.reference import Reference

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from rich.table import Table
    from torch import nn

    from vcycle.data import Replacement
    from vcycle.train.outcome import EvalResult

__all__ = ["Evaluator", "Measure", "Scope", "TaskEvaluation"]

Scope = Literal["validation", "comparison", "full"]
"""What an evaluator takes: `validation`, during training, may take a few of the items, and one view of each;
`comparison`, on the test split of `vcycle compare`, takes all items, and one view of each; `full` takes all views."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The metric that a task reports; higher is better."""

    name: str
    """Its name in an evaluation: `top-1`."""
    key: str
    """The field of an evaluation that holds it: `top1`."""
    words: str
    """Its name in a table: `accuracy`."""
    unit: str
    """The unit of a value."""
    points: str
    """The unit of a difference."""
    scale: float
    """Factor from a value to the displayed number, such as 100 for per cent."""
    digits: int
    """Decimals."""
    margin: float
    """The usual non-inferiority margin, before `scale`."""
    samples: str
    """The items that it averages over: `videos`."""
    is_share: bool = False
    """Whether it is the share of items that are right, each of which is right or wrong: its standard error is then
    known, the binomial one. Accuracy is such a share, mAP in per cent is not."""
    reference: str = ""
    """What an evaluation also measures without training: `bicubic`; empty if it does not."""
    reference_key: str = ""
    """The field of an evaluation that holds the value of that reference."""

    def text(self, value: float) -> str:
        """Format a value with its unit.

        Example:
            >>> accuracy = Measure(name="top-1", key="top1", words="accuracy", unit="%", points="points", scale=100.0,
            ...                    digits=1, margin=0.01, samples="videos")
            >>> accuracy.text(0.9876)
            '98.8 %'
        """
        return f"{self.scale * value:.{self.digits}f} {self.unit}"

    def reference_in(self, evaluation: Mapping[str, Any]) -> float | None:
        """The value of the reference in an evaluation's fields; None if there is none, or an infinite one."""
        value = evaluation.get(self.reference_key)
        return float(value) if isinstance(value, int | float) and isfinite(value) else None


class Evaluator(ABC):
    """Evaluates models on one dataset, item by item. Each rank takes a share of the items; the result uses all."""

    doing: ClassVar[str] = "evaluating"
    """Name of the operation in progress reports."""
    item: ClassVar[str] = "item"
    """Name of one item: `video`, `clip`."""

    shape: Shape | None = None
    """Shape of the clips that the model is given; None if it varies."""
    on_fault: Callable[[str], None]
    """Called with the fault of an item that still counts, such as a truncated file; once per item and evaluation."""

    def __init__(self) -> None:
        """Ignore faults until `on_fault` is set."""
        self.on_fault = lambda _: None

    @abstractmethod
    def each(
        self,
        model: "nn.Module",
        device: "torch.device",
        *,
        rank: int = 0,
        world: int = 1,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> "Iterator[Any | Replacement]":
        """Evaluate a rank's share of the items: yields each item's result, or the reason that it cannot be read."""

    def at(self, shape: Shape) -> "Evaluator":
        """An evaluator on clips of this shape, as in a training stage, instead of full resolution.

        Raises:
            RecipeError: if the task has none.
        """
        raise RecipeError(f"run.validate_stage_shape: this task has no evaluation at a stage's shape, such as {shape}")

    @abstractmethod
    def result(self, found: Sequence[Any]) -> "EvalResult":
        """Compute the metrics from the results of all ranks.

        Raises:
            DataError: if no item could be read.
        """

    def line(self, result: "EvalResult", split: str) -> str:
        """Format the result and its protocol in one line."""
        return f"{result.headline} on {split}"

    def warning(self, result: "EvalResult") -> str | None:
        """A warning if the result is worse than a trivial baseline or of too few items; None otherwise."""
        return None

    def per_item(self, found: Sequence[Any]) -> list[float | None] | None:
        """The metric of each item in the dataset's order, None for an item without one.

        Returns None if the metric is not a mean over items.
        """
        return None

    def conditions(self) -> dict[str, Any]:
        """The conditions beside model and split that are printed and written with the metrics."""
        return {}

    def details(self, found: Sequence[Any]) -> dict[str, Any]:
        """Details to write with the metrics, such as a row per item."""
        return {}

    def table(self, found: Sequence[Any]) -> "Table | None":
        """A table to print below the line."""
        return None

    def check_figure(self) -> None:
        """Check that a figure can be drawn, before the evaluation starts.

        Raises:
            RecipeError: if it cannot.
        """
        raise RecipeError("--figure: this evaluation has no figure")

    def figure(self, found: Sequence[Any], title: str) -> "Figure":
        """Draw the results."""
        raise NotImplementedError

    @property
    def suffix(self) -> str:
        """Suffix of the result file's name: the views per item."""
        return ""


class TaskEvaluation(Part[R, F]):
    """The measures of a task, and the evaluators that find their values."""

    measures: ClassVar[tuple[Measure, ...]]
    """The metrics that it supports."""

    def measure(self, recipe: R) -> Measure:
        """The metric of the recipe."""
        return self.measures[0]

    @abstractmethod
    def evaluator(self, recipe: R, dataset: Any, classes: Sequence[str], *, scope: Scope) -> Evaluator:
        """Build the evaluator of a split's dataset, for a scope."""

    @abstractmethod
    def result(self, **fields: Any) -> "EvalResult":
        """Build an evaluation result from its fields, as read from a log."""

    def reference(self, recipe: R, found: F, measured: float | None) -> Reference | None:
        """What a split gives without training, such as the chance level; None if the task knows of nothing.

        Args:
            recipe: The recipe.
            found: The split.
            measured: What evaluations of the split measured without training, by `Measure.reference_key`.
        """
        return None
