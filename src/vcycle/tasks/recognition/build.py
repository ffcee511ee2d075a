"""From a recipe to what it trains: datasets, task, model, settings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.data.layouts import VideoList
from vcycle.errors import DataError, RecipeError
from vcycle.plan import Plan
from vcycle.tasks.recognition.data import Progress, Videos, check_videos, was_prepared
from vcycle.tasks.recognition.recipe import Recipe

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vcycle.data import FrameSource, GridSampler, VideoDataset
    from vcycle.tasks.recognition import Recognition
    from vcycle.train.outcome import Fitted, Point, StepReport
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder

__all__ = [
    "Splits",
    "build_model",
    "check_plan",
    "dataset_of",
    "datasets_of",
    "grids_of",
    "task_of",
    "train",
]


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The datasets of a recipe, by split."""

    train: "VideoDataset"
    val: "VideoDataset"
    test: "VideoDataset | None"


def datasets_of(recipe: Recipe, videos: Videos, work: Path, progress: Progress = lambda *_: None) -> Splits:
    """The recipe's datasets; frames are cached under `work` where the recipe says so.

    Raises:
        RecipeError: as `check_videos`.
    """
    check_videos(recipe, videos)
    return Splits(
        train=dataset_of(recipe, videos.train, "train", work, progress),
        val=dataset_of(recipe, videos.val, "val", work, progress),
        test=None if videos.test is None else dataset_of(recipe, videos.test, "test", work, progress),
    )


def dataset_of(
    recipe: Recipe, found: VideoList, split: str, work: Path, progress: Progress = lambda *_: None
) -> "VideoDataset":
    """One of the recipe's datasets; see `datasets_of`."""
    from vcycle.data import FileSource, FrameCache, KeptIndexes, PreparedSource, VideoDataset, load_index

    grids = grids_of(recipe)
    transform = _transform(recipe) if split == "train" else None
    if recipe.data.cache is None:
        source: FrameSource | None = None  # pictures in folders
        if was_prepared(recipe):
            source = PreparedSource(load_index(found.root), split)
        elif found.frame_rate is None:
            source = FileSource(found, kept=KeptIndexes(work / "cache" / "indexes.sqlite"))
        return VideoDataset(found, grids, source=source, transform=transform)
    cache = FrameCache.build(
        found,
        work / "cache",
        short_side=recipe.data.cache,
        progress=lambda done, total: progress(f"decoding {split} videos once", done, total),
    )
    return VideoDataset(found, grids, source=cache, transform=transform)


def _transform(recipe: Recipe) -> "Callable[[torch.Tensor], torch.Tensor] | None":
    """What changes a clip to train on."""
    wanted = recipe.augment.randaugment
    if wanted is None:
        return None
    from vcycle.tasks.recognition.augment import ClipAugment

    return ClipAugment(ops=wanted.ops, magnitude=wanted.magnitude, fill=recipe.sampling.mean)


def grids_of(recipe: Recipe) -> "GridSampler":
    """The recipe's sampling grids."""
    from vcycle.data import GridSampler

    s, t = recipe.sampling, recipe.training
    return GridSampler(
        frames=t.frames,
        size=t.size,
        stride=s.stride,
        fps=s.fps,
        span=s.span,
        segments=s.segments,
        short_side=s.short_side,
        field=s.field,
        flip=s.flip,
        antialias=s.antialias,
    )


def check_plan(recipe: Recipe, plan: Plan) -> None:
    """Check a plan against what the recipe's model needs, and the recipe's grids. Needs no torch.

    Raises:
        PlanError: naming the stage and step of the first shape that the model cannot take.
        RecipeError: for an unknown model or option, a sampling that makes no grid, or views that the model cannot be
            evaluated on.
    """
    from vcycle.tasks.recognition.evaluate import views_of
    from vcycle.tasks.recognition.models.catalog import needs

    plan.require(needs(recipe.model.name, **recipe.model.options), recipe.model.name)
    try:
        grids_of(recipe)
    except DataError as error:  # begins with the names of fields, which are those of the section
        raise RecipeError(f"sampling.{error}") from None
    views_of(recipe)


def build_model(recipe: Recipe, classes: int, seed: int) -> "nn.Module":
    """The recipe's model, its weights drawn under the seed."""
    import torch

    from vcycle.tasks.recognition.models.catalog import build

    torch.manual_seed(seed)
    return build(recipe.model.name, classes, **recipe.model.options)


def task_of(recipe: Recipe, classes: int) -> "Recognition":
    """The recipe's task."""
    from vcycle.tasks.recognition import Recognition

    return Recognition(
        classes=classes,
        mean=recipe.sampling.mean,
        std=recipe.sampling.std,
        label_smoothing=recipe.training.label_smoothing,
        multi_label=recipe.training.multi_label,
        mixup=recipe.augment.mixup,
        cutmix=recipe.augment.cutmix,
    )


def train(
    recipe: Recipe,
    plan: Plan,
    splits: Splits,
    run: "RunFolder",
    *,
    seed: int | None = None,
    text: str | None = None,
    resume: bool = False,
    ranks: "Ranks | None" = None,
    on_step: "Callable[[StepReport], None]" = lambda _: None,
    on_point: "Callable[[Point], None]" = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> "Fitted":
    """Train a recipe's model under a plan; see `vcycle.train.trainer.fit`.

    Validations tell `on_progress` how far they are: what, how much is done, of how much.
    """
    from vcycle.nn import freeze
    from vcycle.runs.loaded_model import without_downloads
    from vcycle.runs.resume_guard import enter
    from vcycle.tasks.recognition import Evaluation
    from vcycle.tasks.recognition.evaluate import evaluator
    from vcycle.tasks.recognition.init_weights import initialise
    from vcycle.train.callbacks import Callbacks
    from vcycle.train.config import EmaSpec, TrainConfig
    from vcycle.train.ranks import ALONE
    from vcycle.train.trainer import fit

    ranks = ranks or ALONE
    training = recipe.training
    config = TrainConfig(
        run=recipe.run if seed is None else recipe.run.model_copy(update={"seed": seed}),
        loading=recipe.data,
        optimizer=recipe.optimizer,
        ema=None if training.ema is None else EmaSpec(decay=training.ema, clips=plan.baseline.batch),
        precise_bn=training.precise_bn,
        clip_grad_norm=training.clip_grad_norm,
    )
    videos = {"train": splits.train.videos, "val": splits.val.videos}
    names = splits.train.videos.classes
    goes_on = ranks.from_first(lambda: enter(run, recipe, plan, videos, text=text, resume=resume, classes=names))
    given = goes_on or recipe.init.path is not None
    model = build_model(without_downloads(recipe) if given else recipe, len(names), config.run.seed)
    if not goes_on:
        initialise(model, recipe, names, on_message if ranks.first else lambda _: None)
    return fit(
        config,
        plan=plan,
        model=freeze(model, training.freeze),
        dataset=splits.train,
        objective=task_of(recipe, len(names)),
        run=run,
        validate=evaluator(recipe, splits.val, on_message, ranks=ranks, on_progress=on_progress),
        evaluation=Evaluation,
        callbacks=Callbacks(on_step=on_step, on_validation=on_point, on_message=on_message, on_progress=on_progress),
        resume=resume,
        ranks=ranks,
    )
