"""From a recipe to what it trains: videos, datasets, task, model, settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vcycle.data.layouts import LayoutName, VideoList, layout_of, read_folder, read_list, read_videos, splits_of
from vcycle.data.layouts.files import refuse_video
from vcycle.data.layouts.folder import folder_splits
from vcycle.data.prepare.names import is_prepared
from vcycle.errors import DataError, RecipeError
from vcycle.plan import Plan
from vcycle.recipes.schema import DigitsSection, Recipe

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vcycle.data import FrameSource, GridSampler, VideoDataset
    from vcycle.recipes.load import AnyRecipe
    from vcycle.tasks.recognition import Recognition
    from vcycle.train.loop import Settings
    from vcycle.train.outcome import Fitted, Point, StepReport
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder

__all__ = [
    "Splits",
    "Videos",
    "build_model",
    "check_plan",
    "check_videos",
    "dataset_of",
    "datasets_of",
    "every_video",
    "find_videos",
    "grids_of",
    "settings_of",
    "task_of",
    "train",
]

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and how much there is."""


@dataclass(frozen=True, kw_only=True)
class Videos:
    """The videos of a recipe, by split."""

    train: VideoList
    val: VideoList
    test: VideoList | None
    layout: str = "folder"
    """How they lie on disk."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know: a layout that was recognised, videos listed but not there, classes without any."""
        found = [videos for videos in (self.train, self.val, self.test) if videos is not None]
        notes = [] if self.layout in ("folder", "list") else [f"layout: {self.layout}, by {self.train.source}"]
        notes += [
            f"{videos.source}: {videos.missing:,} of {len(videos) + videos.missing:,} videos have no file and are "
            "left out"
            for videos in found
            if videos.missing
        ]
        empty = sorted(set(range(len(self.train.classes))) - set(self.train.labels))
        if empty:
            names = ", ".join(repr(self.train.classes[label]) for label in empty[:3])
            notes.append(
                f"{self.train.source}: no video to train on for {len(empty):,} of {len(self.train.classes):,} classes: "
                f"{names}{', …' if empty[3:] else ''}"
            )
        return tuple(notes)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The datasets of a recipe, by split."""

    train: "VideoDataset"
    val: "VideoDataset"
    test: "VideoDataset | None"


def find_videos(recipe: Recipe, work: Path, progress: Progress = lambda *_: None) -> Videos:
    """Find the recipe's videos, or make the embedded set under `work`.

    Raises:
        RecipeError: if the recipe names no videos.
        DataError: if they are not there, or not as they should be.
    """
    data = recipe.data
    if data.digits is not None:
        made = _render(data.digits, Path(data.path) if data.path else work / "digits", progress)
        test = read_videos(made, "test") if "test" in data.digits.clips else None
        return Videos(train=read_videos(made, "train"), val=read_videos(made, "val"), test=test)
    if data.path is None:
        raise RecipeError("the recipe names no videos: give a folder or a list file with data=PATH")
    path = Path(data.path)
    if not is_prepared(path):
        if path.is_file():
            refuse_video(path)
        if path.is_file() and data.val is None:
            raise RecipeError(f"data.path {data.path} is one list: give a list of validation videos with data.val=FILE")
        if path.is_file() and (data.layout not in ("auto", "list") or data.fold is not None):
            raise RecipeError(f"data.path {data.path} is one list: data.layout and data.fold go with a folder")
        if not path.is_file() and (data.val is not None or data.test is not None):
            raise RecipeError(f"data.path {data.path} is a folder: data.val and data.test go with a list file")
    layout, splits, read = _reader(recipe)
    return Videos(train=read("train"), val=read("val"), test=read("test") if "test" in splits else None, layout=layout)


def every_video(recipe: Recipe, *, cut: bool = True) -> dict[str, VideoList]:
    """The videos that a recipe's data lists, by split, whether or not their files are there.

    Args:
        recipe: The recipe.
        cut: Whether to cut a split for validation from folders per class, as training does.

    Raises:
        DataError: if the data is not as it should be.
    """
    path = Path(recipe.data.path or "")
    layout, splits, read = _reader(recipe, check_files=False)
    if layout == "folder" and not cut and not folder_splits(path):
        return {"train": read_folder(path, "train", val_fraction=0)}
    return {split: read(split) for split in splits}


def _reader(recipe: Recipe, *, check_files: bool = True) -> tuple[str, Sequence[str], Callable[[str], VideoList]]:
    """How the recipe's videos lie, which splits there are, and what reads one."""
    data = recipe.data
    path = Path(data.path or "")
    root = None if data.root is None else Path(data.root)
    if is_prepared(path):
        from vcycle.data import load_index

        index = load_index(path)
        return "prepared", index.splits, index.videos
    if path.is_file():
        lists = {"train": path} | {
            split: Path(given) for split, given in (("val", data.val), ("test", data.test)) if given is not None
        }
        train = read_list(path, root, check_files=check_files)

        def read_one(split: str) -> VideoList:
            if split == "train":
                return train
            return read_list(lists[split], root, classes=train.classes, check_files=check_files)

        return "list", tuple(lists), read_one
    layout = _layout(recipe, path)

    def read(split: str) -> VideoList:
        return read_videos(
            path,
            split,
            layout=layout,
            videos=root,
            fold=data.fold,
            val_fraction=data.val_fraction,
            check_files=check_files,
        )

    return layout, splits_of(path, layout, videos=root), read


def _layout(recipe: Recipe, folder: Path) -> LayoutName:
    """How the videos of a folder lie."""
    data = recipe.data
    layout = layout_of(folder) if data.layout == "auto" else data.layout
    if layout == "folder" and data.root is not None:
        raise RecipeError(f"data.root {data.root} goes with list files: data.path {data.path} has a folder per class")
    return layout


def check_videos(recipe: Recipe, videos: Videos) -> None:
    """Check that the recipe's task and cache take its videos. Needs no torch.

    Raises:
        RecipeError: if they do not.
        DataError: if they are all of one class.
    """
    data, training, augment, init = recipe.data, recipe.training, recipe.augment, recipe.init
    if init.needed and init.path is None and "weights" not in recipe.model.options:  # torchvision's own
        raise RecipeError(
            "the recipe begins with trained weights, and names none: give their file with init=FILE; "
            "init.needed=false trains from nothing"
        )
    if videos.train.multi_label and not training.multi_label:
        message = "its videos have any number of labels, and training.multi_label is false: true trains on them"
        raise RecipeError(f"data.path {data.path}: {message}")
    if training.multi_label and not videos.train.multi_label:
        message = "its videos have one label each, and training.multi_label is true: false trains on them"
        raise RecipeError(f"data.path {data.path}: {message}")
    classes = len(videos.train.classes)
    if classes < 2 and not training.multi_label:
        raise DataError(
            f"data.path {data.path}: its videos are of {classes} class ({', '.join(videos.train.classes)}): at least 2 "
            "are needed to tell apart"
        )
    if training.multi_label and training.label_smoothing:
        raise RecipeError(
            f"training.label_smoothing={training.label_smoothing:g}: videos of any number of labels are learnt by "
            "binary cross-entropy, which has none; 0 is accepted"
        )
    if training.precise_bn is not None and training.freeze != "none":
        raise RecipeError(
            f"training.precise_bn={training.precise_bn}: training.freeze={training.freeze} keeps BatchNorm's "
            "statistics as they are; null is accepted"
        )
    if training.precise_bn is not None and training.ema is not None:
        raise RecipeError(
            f"training.precise_bn={training.precise_bn} is of the weights as they are, and training.ema="
            f"{training.ema:g} evaluates their average: null is accepted for either"
        )
    asked = [name for name in ("randaugment", "mixup", "cutmix") if getattr(augment, name) is not None]
    if asked and find_spec("torchvision") is None:
        raise RecipeError(
            f"augment.{asked[0]} is torchvision's, which is not installed: pip install 'vcycle[torchvision]'"
        )
    if data.cache is not None and _is_prepared(recipe):
        from vcycle.data import load_index

        if load_index(Path(data.path or "")).settings.to == "array":
            raise RecipeError(f"data.cache={data.cache}: {data.path} is an array already and needs no cache")


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
        if _is_prepared(recipe):
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
    """Check a plan against what the recipe's model needs. Needs no torch.

    Raises:
        PlanError: naming the stage and step of the first shape that the model cannot take.
        RecipeError: for an unknown model or option, or views that it cannot be evaluated on.
    """
    from vcycle.nn.catalog import needs
    from vcycle.recipes.evaluating import views_of

    plan.require(needs(recipe.model.name, **recipe.model.options), recipe.model.name)
    views_of(recipe)


def build_model(recipe: Recipe, classes: int, seed: int) -> "nn.Module":
    """The recipe's model, its weights drawn under the seed."""
    import torch

    from vcycle.nn.catalog import build

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


def settings_of(recipe: "AnyRecipe", *, seed: int | None = None) -> "Settings":
    """How the recipe's run is carried out."""
    from vcycle.train.loop import Settings

    r = recipe.run
    return Settings(
        seed=r.seed if seed is None else seed,
        device=r.device,
        precision=r.precision,
        workers=recipe.data.workers,
        timeout=recipe.data.timeout,
        prefetch=recipe.data.prefetch,
        validate_every=r.validate_every,
        save_every=r.save_every,
        bad_limit=r.bad_limit,
        tensorboard=r.tensorboard,
        fit=r.fit,
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
) -> "Fitted":
    """Train a recipe's model under a plan; see `vcycle.train.loop.fit`."""
    from vcycle.nn import freeze
    from vcycle.recipes.evaluating import evaluator
    from vcycle.recipes.initial import initialise
    from vcycle.recipes.opened import without_downloads
    from vcycle.recipes.resuming import begin, check_resume, go_on
    from vcycle.tasks.recognition import Evaluation
    from vcycle.train.ema import EmaSpec
    from vcycle.train.loop import fit
    from vcycle.train.optimizer import OptimizerSpec
    from vcycle.train.ranks import ALONE

    ranks = ranks or ALONE
    settings = settings_of(recipe, seed=seed)
    optimizer = OptimizerSpec(**recipe.optimizer.model_dump())
    classes = len(splits.train.videos.classes)
    videos = {"train": splits.train.videos, "val": splits.val.videos}

    def prepare() -> bool:
        if run.prepare(plan, text, resume=resume, classes=splits.train.videos.classes):
            check_resume(run, recipe, plan, videos)
            go_on(run, recipe)
            return True
        begin(run, videos)
        return False

    goes_on = ranks.from_first(prepare)
    given = goes_on or recipe.init.path is not None
    model = build_model(without_downloads(recipe) if given else recipe, classes, settings.seed)
    if not goes_on:
        initialise(model, recipe, splits.train.videos.classes, on_message if ranks.first else lambda _: None)
    return fit(
        plan=plan,
        model=freeze(model, recipe.training.freeze),
        dataset=splits.train,
        task=task_of(recipe, classes),
        optimizer=optimizer,
        run=run,
        settings=settings,
        recipe=text,
        classes=splits.train.videos.classes,
        precise_bn=recipe.training.precise_bn,
        ema=None if recipe.training.ema is None else EmaSpec(decay=recipe.training.ema, clips=plan.baseline.batch),
        resume=resume,
        ranks=ranks,
        validate=evaluator(recipe, splits.val, on_message, ranks=ranks),
        evaluation=Evaluation,
        on_step=on_step,
        on_point=on_point,
        on_message=on_message,
    )


def _is_prepared(recipe: Recipe) -> bool:
    """Whether the recipe's videos were written by `vcycle prepare`."""
    return recipe.data.digits is None and recipe.data.path is not None and is_prepared(Path(recipe.data.path))


def _render(section: DigitsSection, root: Path, progress: Progress) -> Path:
    from vcycle.data.digits import DigitSettings, render_digits

    settings = DigitSettings(**section.model_dump(exclude={"clips"}), clips=dict(section.clips))
    return render_digits(root, settings, progress=lambda done, total: progress("making videos", done, total))
