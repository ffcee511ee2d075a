"""What the tasks that classify clips have in common."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from vcycle.data.layouts import VideoList
from vcycle.data.layouts.files import VIDEOS, Kind
from vcycle.errors import DataError, RecipeError
from vcycle.plan import Baseline, Plan, Shape
from vcycle.tasks.base import CheckOptions, Measure, Progress, Scope, Splits, Task
from vcycle.tasks.classification.balance import balance_of, balance_words, check_balance, class_weights_of
from vcycle.tasks.classification.plans import baseline_of, lengthened
from vcycle.tasks.classification.recipe import ClassificationRecipe
from vcycle.tasks.details import Detail
from vcycle.tasks.memory import check_extent
from vcycle.tasks.models import models_of
from vcycle.tasks.reference import Reference
from vcycle.utils.units import counted

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray
    from torch import nn

    from vcycle.data import Balance, CheckReport, FrameSource, GridSampler
    from vcycle.data.prepare.summary import NextStep, Summary
    from vcycle.tasks.classification.evaluate import VideoEvaluator
    from vcycle.tasks.classification.metrics import RecognitionMetrics
    from vcycle.tasks.classification.objective import Recognition
    from vcycle.tasks.loaded_model import LoadedModel
    from vcycle.tasks.prediction import Prediction, PredictOptions, VideoInput

__all__ = ["ClassificationTask", "chance_of", "decoded", "percentage"]

R = TypeVar("R", bound=ClassificationRecipe)


def percentage(name: str, key: str, words: str, samples: str, *, is_share: bool) -> Measure:
    """A metric in per cent.

    Args:
        name: As in `Measure`, like the others.
        key: The field that holds it.
        words: Its name in a table.
        samples: The items that it averages over.
        is_share: Whether each item is right or wrong.
    """
    return Measure(
        name=name,
        key=key,
        words=words,
        unit="%",
        points="points",
        scale=100.0,
        digits=1,
        margin=0.01,
        samples=samples,
        is_share=is_share,
    )


def chance_of(found: VideoList) -> Reference | None:
    """What guessing scores on a split: the share of its largest class; None for several labels per item."""
    if found.multi_label or not len(found):
        return None
    return Reference(
        name="chance",
        value=max(Counter(found.labels).values()) / len(found),
        words="the largest class's share",
        advice="train longer (training.epochs), start from trained weights (init=FILE), check the labels and "
        "training.lr",
        trials=len(found),
    )


def decoded(
    listed: Mapping[str, VideoList],
    options: CheckOptions,
    progress: Progress,
    advise: "Callable[[Summary], Sequence[NextStep]]",
    *,
    item: str = "video",
    kind: Kind = VIDEOS,
) -> "CheckReport":
    """Decode all files of each split, as `vcycle check` asks, and look at what is beside them.

    Args:
        listed: The files by split.
        options: The options of the command.
        progress: Called with the progress.
        advise: Returns what to run next.
        item: Name of one item.
        kind: What the files are.
    """
    from vcycle.data import check_videos
    from vcycle.data.layouts.ignored import ignored_in

    report = check_videos(
        listed, quick=options.quick, workers=options.workers, patience=options.patience, progress=progress
    )
    root = options.folder
    beside = ignored_in(root, listed.values(), kind=kind) if isinstance(root, Path) and root.is_dir() else []
    summary = replace(report.summary, item=item, ignored=beside)
    return replace(report, summary=replace(summary, next=advise(summary)))


class ClassificationTask(Task[R, VideoList]):
    """A task whose model gives each item, a video or an image, the scores of classes."""

    brought = ("sampling.mean", "sampling.std")
    item: ClassVar[str]
    """Name of one item: `video`."""
    frame_rate: ClassVar[float | None] = None
    """The rate of items that are pictures; None for video files."""

    def baseline(self, recipe: R, samples: int | None) -> Baseline:
        """The recipe's baseline of constant shape."""
        return baseline_of(recipe, samples)

    def check_plan(self, recipe: R, plan: Plan) -> None:
        """Check a plan against the model's shape constraints, the sampling, and the views of the evaluation."""
        from vcycle.tasks.classification.evaluate import views_of
        from vcycle.tasks.classification.sampling import grids_of

        plan.require(models_of(self.name).needs_of(recipe.model), recipe.model.name)
        try:
            grids_of(recipe)
        except DataError as error:  # starts with field names, which equal the section's keys
            raise RecipeError(f"sampling.{error}") from None
        views_of(recipe)
        check_extent(plan)

    def check(self, recipe: R, splits: Splits[VideoList], *, fresh: bool) -> list[str]:
        """Check that the items, their classes and balanced sampling fit the recipe."""
        _ = splits.val
        self.check_items(recipe, splits)
        check_balance(recipe, splits.train)
        return []

    def check_items(self, recipe: R, splits: Splits[VideoList]) -> None:
        """Check that the items fit the recipe.

        Raises:
            RecipeError: if they do not.
            DataError: if the data is wrong.
        """

    def describe(self, recipe: R, splits: Splits[VideoList]) -> str:
        """The numbers of items and classes."""
        classes = len(splits.classes)
        return (
            f"{counted(len(splits.train), f'training {self.item}')} in {classes} classes and "
            f"{counted(len(splits.val), f'validation {self.item}')}"
        )

    def grids(self, recipe: R) -> "GridSampler":
        """The recipe's clip sampler."""
        from vcycle.tasks.classification.sampling import grids_of

        return grids_of(recipe)

    def reference(self, recipe: R, found: VideoList, measured: float | None) -> Reference | None:
        """The share of the largest class; None for several labels per item."""
        return chance_of(found)

    def embedded_data(self, recipe: R, work: Path) -> Any:
        """The data section of the embedded digits, with the path where they were written."""
        data: Any = recipe.data
        if data.digits is None or data.path is not None:
            return None
        return data.model_copy(update={"path": str(work / "digits")})

    def notices(self, recipe: R, splits: Splits[VideoList], plan: Plan | None) -> list[str]:
        """How often balanced sampling draws the smallest and the largest class, then the notes on the plan."""
        check_balance(recipe, splits.train)
        balanced = None if plan is None else balance_words(recipe, splits.train, self.item)
        return [*([] if balanced is None else [balanced]), *super().notices(recipe, splits, plan)]

    def plan_notices(self, recipe: R, plan: Plan, samples: int | None) -> list[str]:
        """Notes on many epochs of few items, repeated augmentation, and the strength of the regularisation by size."""
        from vcycle.tasks.classification.sampling import strength_of

        notes = []
        longer, strength = lengthened(recipe, samples), strength_of(recipe)
        if longer is not None:
            notes.append(longer)
        repeats, items = recipe.augment.repeats, recipe.data.clips if samples is None else samples
        if repeats > 1 and items is not None:
            notes.append(
                f"augment.repeats={repeats}: {repeats} clips of each {self.item}, so an epoch of {items:,} clips has "
                f"{-(-items // repeats):,} different {self.item}s, and each {self.item} comes every {repeats} epochs"
            )
        sides = sorted({cell.size for cell in plan.shapes})
        if strength is not None and len(sides) > 1:
            shown = ", ".join(f"{strength(side):.2g} at {side}²" for side in sides)
            notes.append(f"augment.strength_at_half={strength.at_half:g}: strength of the regularisation: {shown}")
        return notes

    def source(self, recipe: R, found: VideoList, split: str, work: Path) -> "FrameSource | None":
        """The frame source of a split without a cache; None for that of any list."""
        return None

    def dataset(
        self, recipe: R, splits: Splits[VideoList], split: str, work: Path, progress: Progress = lambda *_: None
    ) -> Any:
        """A `VideoDataset` of a split; frames are cached under `work` if the recipe sets a cache."""
        from vcycle.data import FrameCache, VideoDataset
        from vcycle.tasks.classification.sampling import augmentation_of, grids_of

        found, side, what = splits[split], recipe.data.cache, f"decoding {split} {self.item}s once"
        source = (
            self.source(recipe, found, split, work)
            if side is None
            else FrameCache.build(found, work / "cache", short_side=side, progress=lambda *done: progress(what, *done))
        )
        transform = augmentation_of(recipe) if split == "train" else None
        return VideoDataset(found, grids_of(recipe), source=source, transform=transform)

    def build_model(self, recipe: R, classes: int, *, download: bool = True) -> "nn.Module":
        """The recipe's model."""
        from vcycle.tasks.classification.build import build_model

        return build_model(recipe, classes, download=download)

    def objective(self, recipe: R, classes: int) -> "Recognition":
        """Cross-entropy, with mixup and label smoothing if the recipe sets them."""
        from vcycle.tasks.classification.evaluate import objective_of
        from vcycle.tasks.classification.objective import Recognition

        return objective_of(recipe, classes, Recognition)

    def training_objective(self, recipe: R, splits: Splits[VideoList]) -> "Recognition":
        """The objective, with the recipe's class weights."""
        objective = self.objective(recipe, len(splits.classes))
        return replace(objective, class_weights=class_weights_of(recipe, splits.train))

    def balance(self, recipe: R, splits: Splits[VideoList]) -> "Balance | None":
        """Balanced sampling of the classes."""
        return balance_of(recipe, splits.train)

    def evaluator(self, recipe: R, dataset: Any, classes: Sequence[str], *, scope: Scope) -> "VideoEvaluator":
        """Accuracy over items, with the recipe's views, or one center clip per item."""
        from vcycle.tasks.classification.evaluate import VideoEvaluator

        return VideoEvaluator(recipe, dataset, classes, scope=scope)

    def details(self, evaluation: Mapping[str, Any]) -> Sequence[Detail]:
        """The confusion matrix, the classes and the most confident mistakes."""
        from vcycle.tasks.classification.details import evaluation_details

        return evaluation_details(evaluation, self.item)

    def frames(
        self, recipe: R, splits: Splits[VideoList], split: str, items: Sequence[str], *, count: int, side: int
    ) -> "Mapping[str, NDArray[uint8]]":
        """Frames of the center clips; a picture is one frame."""
        from vcycle.tasks.classification.details import frames_of

        count, side = min(count, recipe.shape.frames), min(side, recipe.training.size)
        return frames_of(splits[split], self.grids(recipe), items, count=count, side=side)

    def result(self, **fields: Any) -> "RecognitionMetrics":
        """An evaluation from its fields."""
        from vcycle.tasks.classification.metrics import RecognitionMetrics

        return RecognitionMetrics(**fields)

    def predict(
        self, loaded: "LoadedModel", videos: "Sequence[VideoInput]", options: "PredictOptions"
    ) -> "Iterator[Prediction]":
        """The classes of each item, or of the time windows of videos."""
        from vcycle.tasks.classification.predictor import predictor_of

        views, top, rate = options.views, options.top, options.frame_rate
        changes = [] if views is None else [f"evaluation.clips={views[0]}", f"evaluation.crops={views[1]}"]
        predictor = predictor_of(loaded, changes, loaded.origin, options.workers)
        if options.window is None:
            yield from predictor.predict(videos, top, frame_rate=rate)
            return
        for video in videos:
            yield from predictor.predict_windows(
                video, top, window=options.window, stride=options.stride, frame_rate=rate
            )

    def input_shape(self, recipe: R, plan: Plan) -> Shape:
        """The shape of the evaluation's clips."""
        from vcycle.tasks.classification.evaluate import center_view

        return center_view(recipe).shape

    def input_facts(self, recipe: R) -> Mapping[str, Any]:
        """All that prediction from one center clip needs besides the program.

        `short_side` is that of the frame before the crop, not rounded, and `scores` the activation on the logits.
        """
        from vcycle.tasks.classification.evaluate import center_view, scoring_of

        view, sampling = center_view(recipe), recipe.sampling.model_dump(mode="json")
        keys = ("antialias", "mean", "std", "stride", "fps", "span", "short")
        return {
            "layout": f"{'BCTHW' if self.frame_rate is None else 'BCHW'}, RGB, (value / 255 - mean) / std",
            "frames": view.shape.frames,
            "size": view.shape.height,
            "short_side": self.grids(recipe).short_side_of(view),
            **{key: sampling[key] for key in keys if sampling.get(key) is not None},
            "scores": scoring_of(recipe).kind(self.objective(recipe, 2)),  # the same for any number of classes
        }

    def prepare_model(self, model: "nn.Module", recipe: R) -> "nn.Module":
        """Freeze BatchNorm or the backbone."""
        from vcycle.nn import freeze

        return freeze(model, recipe.training.freeze)

    def precise_bn(self, recipe: R) -> int | None:
        """Number of clips for precise BN."""
        return recipe.training.precise_bn

    def repeats(self, recipe: R) -> int:
        """Samples of each item in succession."""
        return recipe.augment.repeats
