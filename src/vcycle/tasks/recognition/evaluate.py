"""From a recipe to an evaluation: views, batches, scores."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vcycle.errors import DataError, RecipeError
from vcycle.plan import Shape
from vcycle.tasks.recognition.build import dataset_of, task_of
from vcycle.tasks.recognition.data import Progress
from vcycle.tasks.recognition.recipe import Recipe

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vcycle.data import Loader, Replacement, VideoDataset, Views
    from vcycle.runs.loaded_model import Opened
    from vcycle.tasks.recognition import Evaluation, Scored, Scores, Scoring
    from vcycle.train.ranks import Ranks
    from vcycle.train.validation import Evaluator

__all__ = [
    "center_view",
    "check_classes",
    "check_initial",
    "evaluator",
    "open_initial",
    "open_trained",
    "protocol_of",
    "scored",
    "scoring_of",
    "split_of",
    "view_loader",
    "views_of",
]

_FEWEST_BATCHES = 8
"""Batches that even a small set is cut into, so that as many ranks have something to do. Their size must not depend on
the number of ranks: a model's arithmetic depends on it, in the last digits."""


def views_of(recipe: Recipe) -> "Views":
    """The views that the recipe evaluates a finished training on. Needs no torch.

    Raises:
        RecipeError: if they cannot be had, or the recipe's model cannot take them.
    """
    return _views(recipe, clips=recipe.evaluation.clips, crops=recipe.evaluation.crops)


def center_view(recipe: Recipe) -> "Views":
    """The one view that is evaluated during training."""
    return _views(recipe, clips=1, crops=1)


def _views(recipe: Recipe, *, clips: int, crops: int) -> "Views":
    from vcycle.data import Views

    e, s, t = recipe.evaluation, recipe.sampling, recipe.training
    size = e.size or t.size
    short_side = e.short_side
    if short_side is None and e.size is not None and s.field is None:
        if size < t.size:
            raise RecipeError(
                f"evaluation.size is {size}, below training.size {t.size}: it would be cut from a picture as large as "
                f"in training, and show a smaller part of it; say which picture, such as evaluation.short_side={size}"
            )
        # A larger crop of the same picture, as where a net trained at 224 pixels is tested at 256.
        short_side = max(size, s.short_side[0] if s.short_side else t.size)
    if short_side is not None and short_side < size:
        raise RecipeError(f"evaluation.short_side is {short_side}: crops of {size} pixels need {size} or more")
    shape = Shape(t.frames, size, size)
    if e.size is not None:
        from vcycle.tasks.recognition.models.catalog import needs

        refused = needs(recipe.model.name, **recipe.model.options).refusal(shape)
        if refused is not None:
            raise RecipeError(f"evaluation.size is {size}: {refused}")
    return Views(shape=shape, clips=clips, crops=crops, short_side=short_side)


def scoring_of(recipe: Recipe) -> "Scoring":
    """How the recipe makes a video's scores of its views'."""
    from vcycle.tasks.recognition import Scoring

    e = recipe.evaluation
    return Scoring(scores=e.scores, combine=e.combine, precision=recipe.run.precision)


def protocol_of(recipe: Recipe, classes: int, views: "Views") -> str:
    """The protocol of an evaluation in words."""
    words = scoring_of(recipe).words(task_of(recipe, classes), views)
    return f"{words}, fully convolutional" if recipe.evaluation.fully_convolutional else words


def view_loader(recipe: Recipe, dataset: "VideoDataset", views: "Views", *, rank: int = 0, world: int = 1) -> "Loader":
    """Load the views of a rank's share of the videos."""
    from vcycle.data import evaluation_loader

    fair = -(-len(dataset) * len(views) // _FEWEST_BATCHES)
    return evaluation_loader(
        dataset,
        views,
        batch=max(min(max(recipe.training.batch, 16), fair), 1),
        workers=recipe.data.workers,
        timeout=recipe.data.timeout,
        prefetch=recipe.data.prefetch,
        rank=rank,
        world=world,
    )


def scored(
    recipe: Recipe,
    dataset: "VideoDataset",
    model: "nn.Module",
    views: "Views",
    device: "torch.device",
    *,
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> "Iterator[Scored | Replacement]":
    """Score a rank's share of the videos, one after another; see `vcycle.tasks.recognition.score_each`.

    `progress` is told how many are done, of how many; of several ranks' shares, which are of whole batches, about so
    many.

    Raises:
        RecipeError: if the model has no fully convolutional test, and one is asked for.
    """
    from vcycle.tasks.recognition import score_each

    task, scoring = task_of(recipe, len(dataset.videos.classes)), scoring_of(recipe)
    with ExitStack() as stack:
        stack.enter_context(_at_each_place(recipe, model, scoring.kind(task)))
        batches = iter(view_loader(recipe, dataset, views, rank=rank, world=world))
        stack.callback(batches.close)
        total = -(-len(dataset) // world)
        progress(0, total)
        found = score_each(task, model, batches, views, device=device, scoring=scoring)
        for done, video in enumerate(found, start=1):
            yield video
            if done < total:
                progress(done, total)
        progress(total, total)


def _at_each_place(
    recipe: Recipe, model: "nn.Module", kind: Literal["softmax", "sigmoid"]
) -> AbstractContextManager[None]:
    if not recipe.evaluation.fully_convolutional:
        return nullcontext()
    from vcycle.tasks.recognition.models.head import fully_convolutional

    return fully_convolutional(model, recipe.training.size, kind)


def evaluator(
    recipe: Recipe,
    dataset: "VideoDataset",
    on_message: Callable[[str], None] = lambda _: None,
    on_scores: "Callable[[Scores], None]" = lambda _: None,
    *,
    ranks: "Ranks | None" = None,
    on_progress: Progress = lambda *_: None,
) -> "Evaluator":
    """A function that evaluates a model during training, on one center clip per video: at full resolution or a shape.

    Args:
        recipe: The recipe.
        dataset: The videos.
        on_message: Told of each video that cannot be read, once.
        on_scores: Told of every evaluation's scores.
        ranks: The ranks that evaluate together, each its share of the videos; all of them find the same.
        on_progress: Told how far each evaluation is.
    """
    from vcycle.data import Views
    from vcycle.tasks.recognition import Scores
    from vcycle.tasks.recognition.metrics import evaluate as evaluate_scores
    from vcycle.train.ranks import ALONE

    shared = ranks or ALONE

    classes = len(dataset.videos.classes)
    full = center_view(recipe)
    plain = recipe.model_copy(
        update={"evaluation": recipe.evaluation.model_copy(update={"fully_convolutional": False})}
    )
    named: set[int] = set()

    def evaluate(model: "nn.Module", device: "torch.device", /, shape: Shape | None = None) -> "Evaluation":
        views = full if shape is None else Views(shape=shape)
        how = recipe if shape is None else plain
        tell = partial(on_progress, "evaluating videos")
        found = scored(how, dataset, model, views, device, rank=shared.rank, world=shared.world, progress=tell)
        protocol = protocol_of(how, classes, views)
        return shared.pooled(list(found), partial(judge, protocol))

    def judge(protocol: str, everything: "list[Scored | Replacement]") -> "Evaluation":
        scores = Scores.of(everything)
        for bad in scores.unreadable:
            if bad.video not in named:
                named.add(bad.video)
                on_message(f"bad video {bad.path}: {bad.cause}; left out of the evaluation")
        on_scores(scores)
        return evaluate_scores(scores, protocol)

    return evaluate


def split_of(
    recipe: Recipe,
    split: str,
    work: Path,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> "VideoDataset":
    """One split of the recipe's data, and nothing of the others: no cache is built for them.

    Raises:
        RecipeError: if there is no such split.
        DataError: if it cannot be read.
    """
    from vcycle.tasks.recognition.data import find_videos

    if split not in ("train", "val", "test"):
        raise RecipeError(f"split {split!r} is unknown: val, test or train")
    videos = find_videos(recipe, work, progress)
    found = getattr(videos, split)
    if found is None:
        raise RecipeError(f"the data in {recipe.data.path or work} has no test split: --split val")
    return dataset_of(recipe, found, split, work, progress)


def check_classes(dataset: "VideoDataset", classes: tuple[str, ...], origin: str) -> None:
    """Check that a dataset has the classes that a model was trained for, in their order.

    Raises:
        DataError: if it has others.
    """
    own = dataset.videos.classes
    if own == classes:
        return
    differ = next(
        (f"{a!r} where it knows {b!r}" for a, b in zip(own, classes, strict=False) if a != b), "more or fewer"
    )
    raise DataError(
        f"{dataset.videos.source} has {len(own)} classes, and the model in {origin} was trained for {len(classes)}: "
        f"{differ}"
    )


def open_trained(path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False) -> "Opened":
    """Open a model as `vcycle.runs.loaded_model.open_model` does, unless it has not been trained at all.

    Raises:
        CheckpointError: if it has not.
    """
    from vcycle.runs.loaded_model import open_model, refuse_untrained

    opened = open_model(path, on_message, raw=raw)
    refuse_untrained(path, opened.origin, opened.step)
    return opened


def check_initial(recipe: Recipe) -> None:
    """Check that a recipe begins with weights that are worth an evaluation, before its data is looked at.

    Raises:
        RecipeError: if it names none, or draws a new classifier.
    """
    if recipe.init.path is None or recipe.init.head == "new":
        raise RecipeError(
            "a recipe's model is untrained: give the folder of a run, what `vcycle export` wrote, or weights with a "
            "classifier by init=FILE"
        )


def open_initial(
    recipe: Recipe, classes: tuple[str, ...], on_message: Callable[[str], None] = lambda _: None
) -> "Opened":
    """A recipe's model with the weights that the recipe begins with, such as published ones.

    Raises:
        RecipeError: as `check_initial`.
        CheckpointError: if they do not fit.
    """
    from vcycle.runs.loaded_model import Opened, without_downloads
    from vcycle.tasks.recognition.build import build_model
    from vcycle.tasks.recognition.init_weights import initialise

    check_initial(recipe)
    model = build_model(without_downloads(recipe), len(classes), recipe.run.seed)
    initialise(model, recipe, classes, on_message)
    return Opened(model=model.eval(), recipe=recipe, classes=classes, origin=str(recipe.init.path), step=0)
