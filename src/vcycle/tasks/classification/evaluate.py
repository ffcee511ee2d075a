"""Evaluates a classifier: scores several views per video, combines them, and computes the accuracy.

Validations during training use one center clip per video, at full resolution.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from vcycle.errors import RecipeError
from vcycle.plan import Shape
from vcycle.tasks.base import Evaluator, Scope, tasks
from vcycle.tasks.classification.recipe import ClassificationRecipe
from vcycle.tasks.classification.sampling import strength_of
from vcycle.tasks.models import models_of
from vcycle.utils.units import counted

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from rich.table import Table
    from torch import nn

    from vcycle.data import Batch, Loader, Replacement, VideoDataset, Views
    from vcycle.tasks.classification.metrics import RecognitionMetrics
    from vcycle.tasks.classification.objective import Recognition
    from vcycle.tasks.classification.scores import Scored, Scores, Scoring
    from vcycle.train.outcome import EvalResult

Objective = TypeVar("Objective", bound="Recognition")

__all__ = ["VideoEvaluator", "center_view", "objective_of", "scoring_of", "view_loader", "views_of"]

_FEW = 100
"""Videos below which the 95 % interval of an accuracy can be wider than ten points to either side."""
_FEWEST_BATCHES = 8
"""Minimum number of batches of a small dataset, so that as many ranks have work. The batch size must not depend on the
number of ranks, because it affects the last digits of the results."""


class VideoEvaluator(Evaluator):
    """Scores videos; each counts once."""

    doing: ClassVar[str] = "evaluating videos"
    item: ClassVar[str] = "video"

    def __init__(
        self, recipe: ClassificationRecipe, dataset: "VideoDataset", classes: Sequence[str], *, scope: Scope
    ) -> None:
        """Create an evaluator of a dataset.

        Args:
            recipe: The recipe.
            dataset: The videos.
            classes: The class names.
            scope: Only `full` uses all of the recipe's views; else the center clip alone.

        Raises:
            RecipeError: as in `views_of`.
        """
        super().__init__()
        self.views = views_of(recipe) if scope == "full" else center_view(recipe)
        self.shape = self.views.shape
        self._recipe, self._dataset, self._classes = recipe, dataset, tuple(classes)
        self._fully_convolutional = recipe.fully_convolutional
        self._objective = cast("Recognition", tasks[recipe.task].objective(recipe, len(self._classes)))

    def at(self, shape: Shape) -> "VideoEvaluator":
        """An evaluator on the center clip at this shape; never fully convolutional."""
        from vcycle.data import Views

        other = copy(self)
        other.views, other.shape = Views(shape=shape), shape
        other._fully_convolutional = False
        return other

    @property
    def suffix(self) -> str:
        """The clips and crops per video."""
        return f"-{self.views.clips}x{self.views.crops}"

    @property
    def protocol(self) -> str:
        """The evaluation protocol in words."""
        words = scoring_of(self._recipe).words(self._objective, self.views)
        return f"{words}, fully convolutional" if self._fully_convolutional else words

    def each(
        self,
        model: "nn.Module",
        device: "torch.device",
        *,
        rank: int = 0,
        world: int = 1,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> "Iterator[Scored | Replacement]":
        """Score a rank's share of the videos, one by one; see `vcycle.tasks.classification.scores.score_each`.

        With several ranks, the total in `progress` is approximate, because ranks take whole batches.

        Raises:
            RecipeError: if the recipe asks for a fully convolutional test and the model does not support it.
        """
        from vcycle.tasks.classification.scores import score_each

        scoring = scoring_of(self._recipe)
        with ExitStack() as stack:
            if self._fully_convolutional:
                stack.enter_context(_at_each_place(self._recipe, model, scoring.kind(self._objective)))
            batches = iter(view_loader(self._recipe, self._dataset, self.views, rank=rank, world=world))
            stack.callback(batches.close)
            checked = self._report_faults(batches)
            total = -(-len(self._dataset) // world)
            progress(0, total)
            found = score_each(self._objective, model, checked, self.views, device=device, scoring=scoring)
            for done, video in enumerate(found, start=1):
                yield video
                if done < total:
                    progress(done, total)
            progress(total, total)

    def _report_faults(self, batches: "Iterable[Batch]") -> "Iterator[Batch]":
        """Pass the batches on; report the first fault of each damaged video."""
        named: set[str] = set()
        for batch in batches:
            for fault in batch.faults:
                path = fault.rpartition(": ")[0]
                if path not in named:
                    named.add(path)
                    self.on_fault(f"damaged {self.item} {fault}")
            yield batch

    def result(self, found: Sequence[Any]) -> "RecognitionMetrics":
        """Accuracy or mAP, and the loss."""
        from vcycle.tasks.classification.metrics import evaluate

        return evaluate(_scores(found), self.protocol)

    def line(self, result: "EvalResult", split: str) -> str:
        """The main metric, the number of videos, and the protocol."""
        from vcycle.tasks.classification.metrics import RecognitionMetrics

        assert isinstance(result, RecognitionMetrics)
        return f"{accuracy_line(result, split, len(self._classes), self.item)}, loss {result.loss:.3f}"

    def warning(self, result: "EvalResult") -> str | None:
        """How uncertain an accuracy over few videos is; None for many, and for mAP."""
        from vcycle.tasks.classification.metrics import RecognitionMetrics, share_interval

        assert isinstance(result, RecognitionMetrics)
        if result.map is not None or not 0 < result.samples < _FEW:
            return None
        low, high = share_interval(result.top1, result.samples)
        return (
            f"few {self.item}s ({result.samples}): the 95 % confidence interval of {result.headline} is {low:.1%} to "
            f"{high:.1%}"
        )

    def per_item(self, found: Sequence[Any]) -> list[float | None] | None:
        """1 for each video whose top-1 prediction is right, 0 for others; None for unreadable videos."""
        scores = _scores(found)
        if scores.labels.ndim > 1:
            return None
        right = (scores.scores.argmax(1) == scores.labels).int().tolist()
        known = dict(zip(scores.videos.tolist(), right, strict=True))
        return [known.get(video) for video in range(len(self._dataset))]

    def details(self, found: Sequence[Any]) -> dict[str, Any]:
        """One row per class and per video, and the unreadable videos."""
        from vcycle.tasks.classification.eval_report import class_rows, video_rows

        scores = _scores(found)
        return {
            "per_class": class_rows(scores, self._classes, self.item),
            f"{self.item}s": video_rows(scores, self._dataset, self.item),
            f"unreadable_{self.item}s": [{self.item: bad.path, "cause": bad.cause} for bad in scores.unreadable],
        }

    def table(self, found: Sequence[Any]) -> "Table | None":
        """The classes with the lowest accuracy."""
        from vcycle.tasks.classification.eval_report import class_rows
        from vcycle.tasks.classification.figures import weakest_table

        return weakest_table(class_rows(_scores(found), self._classes, self.item), item=self.item)

    def check_figure(self) -> None:
        """Refuse a confusion matrix of multi-label videos."""
        if self._recipe.multi_label:
            raise RecipeError("--figure: a confusion matrix needs one class per video, but the videos are multi-label")

    def figure(self, found: Sequence[Any], title: str) -> "Figure":
        """The confusion matrix."""
        from vcycle.tasks.classification.figures import confusion_figure
        from vcycle.tasks.classification.metrics import confusion

        return confusion_figure(confusion(_scores(found)).tolist(), self._classes, title, item=self.item)


def accuracy_line(evaluation: "RecognitionMetrics", split: str, classes: int, item: str = "video") -> str:
    """Format the main metric, the number of videos, and the protocol."""
    if evaluation.map is None:
        numbers = f"top-1 {evaluation.top1:.1%}"
        mean = evaluation.mean_class_accuracy
        if mean is not None and f"{mean:.1%}" != f"{evaluation.top1:.1%}":
            numbers += f", mean per class {mean:.1%}"
        numbers += f", top-5 {evaluation.top5:.1%}" if classes > 5 else ""  # with 5 or fewer it is 100 %
    else:
        numbers = f"mAP {evaluation.map:.1%}"
        if evaluation.map_classes != classes:
            numbers += f" over the {evaluation.map_classes} of {classes} classes that have a video"
    unread = f"; {evaluation.unreadable} more cannot be read" if evaluation.unreadable else ""
    return f"{numbers} on {counted(evaluation.samples, f'{split} {item}')} ({evaluation.protocol}{unread})"


def objective_of(recipe: ClassificationRecipe, classes: int, kind: type[Objective]) -> Objective:
    """The recipe's objective of a kind: input normalisation and loss."""
    return kind(
        classes=classes,
        mean=recipe.sampling.mean,
        std=recipe.sampling.std,
        label_smoothing=recipe.training.label_smoothing,
        multi_label=recipe.multi_label,
        mixup=recipe.augment.mixup,
        cutmix=recipe.augment.cutmix,
        strength=strength_of(recipe),
    )


def _scores(found: Sequence[Any]) -> "Scores":
    from vcycle.tasks.classification.scores import Scores

    return Scores.of(found)


def views_of(recipe: ClassificationRecipe) -> "Views":
    """The views per video for the evaluation of a trained model. Imports no torch.

    Raises:
        RecipeError: if the sizes contradict each other, or the model does not support them.
    """
    return _views(recipe, clips=recipe.evaluated_clips, crops=recipe.evaluation.crops)


def center_view(recipe: ClassificationRecipe) -> "Views":
    """The single view per video in validations during training."""
    return _views(recipe, clips=1, crops=1)


def _views(recipe: ClassificationRecipe, *, clips: int, crops: int) -> "Views":
    from vcycle.data import Views

    e, s, t = recipe.evaluation, recipe.sampling, recipe.training
    size = e.size or t.size
    short_side = e.short_side
    if short_side is None and e.size is not None and s.field is None:
        if size < t.size:
            raise RecipeError(
                f"evaluation.size is {size}, below training.size {t.size}: it would be cropped from a frame as large "
                "as in training and show a smaller part of it; set the frame size, such as "
                f"evaluation.short_side={size}"
            )
        # A larger crop of the same frame, as for a model trained at 224 pixels and tested at 256.
        short_side = max(size, s.short_side[0] if s.short_side else t.size)
    if short_side is not None and short_side < size:
        raise RecipeError(f"evaluation.short_side is {short_side}: crops of {size} pixels need {size} or more")
    shape = Shape(recipe.shape.frames, size, size)
    if e.size is not None:
        refused = models_of(recipe.task).needs_of(recipe.model).violation(shape)
        if refused is not None:
            raise RecipeError(f"evaluation.size is {size}: {refused}")
    return Views(shape=shape, clips=clips, crops=crops, short_side=short_side)


def scoring_of(recipe: ClassificationRecipe) -> "Scoring":
    """How the recipe computes a video's scores from its views."""
    from vcycle.tasks.classification.scores import Scoring

    e = recipe.evaluation
    return Scoring(scores=e.scores, combine=e.combine, precision=recipe.run.precision)


def view_loader(
    recipe: ClassificationRecipe, dataset: "VideoDataset", views: "Views", *, rank: int = 0, world: int = 1
) -> "Loader":
    """Load the views of a rank's share of the videos."""
    from vcycle.data import evaluation_loader

    fair = -(-len(dataset) * len(views) // _FEWEST_BATCHES)
    return evaluation_loader(
        dataset,
        views,
        batch=max(min(max(recipe.training.batch, 16), fair), 1),
        rank=rank,
        world=world,
        **recipe.data.loader_options,
    )


def _at_each_place(
    recipe: ClassificationRecipe, model: "nn.Module", kind: Literal["softmax", "sigmoid"]
) -> AbstractContextManager[None]:
    from vcycle.tasks.classification.head import fully_convolutional

    return fully_convolutional(model, recipe.training.size, kind)
