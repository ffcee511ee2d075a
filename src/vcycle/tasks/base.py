"""Defines the `Task` interface, which training, evaluation, comparison and export use.

A task is one object in one folder. The flow of `train`, `eval`, `compare`, `bench` and `export` is the same for every
task: `vcycle.runs`, `vcycle.bench` and `vcycle.cli` know no task by name. This module imports no torch, so that
planning starts fast.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from vcycle.config.recipe import RecipeBase
from vcycle.data.layouts.layout import AUTO, Layout, LayoutRegistry
from vcycle.errors import RecipeError, VcycleError
from vcycle.plan import Baseline, Plan, Shape
from vcycle.registry import Registry
from vcycle.section import Section
from vcycle.tasks.details import Detail
from vcycle.tasks.plans import PlanSpec, build_plan
from vcycle.tasks.reference import Reference

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from matplotlib.figure import Figure
    from numpy import uint8
    from numpy.typing import NDArray
    from rich.table import Table
    from torch import Tensor, nn

    from vcycle.data import Balance, CheckReport, GridSampler, Replacement, VideoList
    from vcycle.data.locations import Location
    from vcycle.nn.weights.files import Weights
    from vcycle.tasks.loaded_model import LoadedModel
    from vcycle.tasks.models import ModelRegistry
    from vcycle.tasks.prediction import Prediction, PredictOptions, UpscaleOptions, VideoInput
    from vcycle.train.log import Watched
    from vcycle.train.objective import Objective
    from vcycle.train.outcome import EvalResult

__all__ = [
    "SPLITS",
    "CheckOptions",
    "Demo",
    "Evaluator",
    "Found",
    "Measure",
    "PrepareOptions",
    "Preparer",
    "Progress",
    "Split",
    "Splits",
    "Task",
    "measures",
    "register_layout",
    "register_plan",
    "register_task",
    "tasks",
]

Progress = Callable[[str, int, int], None]
"""Called with the name of the operation, the number of items done, and the total."""
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R", bound=RecipeBase)
F = TypeVar("F", bound="Found")


class Found(Protocol):
    """The videos, clips or images of one split, found but not decoded."""

    @property
    def source(self) -> "Location | str":
        """The folder or list that they were found in."""
        ...

    def __len__(self) -> int:
        """Number of items."""
        ...

    def digest(self) -> dict[str, Any]:
        """Identifies the items, wherever they are stored: numbers such as `videos`, and hashes such as `names`."""
        ...


class Splits(Generic[F]):
    """The data of a recipe, by split. Each split is read on first access."""

    def __init__(
        self, read: Callable[[Split], F], has: Collection[str], *, source: str, layout: str = "folder"
    ) -> None:
        """Create the splits; nothing is read yet.

        Args:
            read: Reads one split.
            has: The splits that exist.
            source: Where the data was found, for messages.
            layout: The dataset layout.
        """
        self._read = read
        self._has = has
        self._source = source
        self.layout = layout
        self._found: dict[str, F] = {}

    def __contains__(self, split: str) -> bool:
        """Whether the split exists."""
        return split in self._has

    def __getitem__(self, split: str) -> F:
        """One split.

        Raises:
            RecipeError: if the split does not exist.
            DataError: if it cannot be read.
        """
        if split not in SPLITS:
            raise RecipeError(f"split {split!r} is unknown: val, test or train")
        if split not in self._found:
            if split == "test" and split not in self._has:
                raise RecipeError(f"the data in {self._source} has no test split: --split val")
            self._found[split] = self._read(split)
        return self._found[split]

    def without(self, dead: Mapping[str, str]) -> None:
        """Remove unreadable items from the training split, by its method `without`."""
        if dead:
            train: Any = self["train"]
            self._found["train"] = train.without(dead)

    @property
    def train(self) -> F:
        """The training split."""
        return self["train"]

    @property
    def val(self) -> F:
        """The validation split."""
        return self["val"]

    @property
    def test(self) -> F | None:
        """The test split, if there is one."""
        return self["test"] if "test" in self._has else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class names; empty if the data has no classes."""
        return tuple(getattr(self.train, "classes", ()))


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
        """A warning if the result is worse than a trivial baseline; None otherwise."""
        del result
        return None

    def per_item(self, found: Sequence[Any]) -> list[float | None] | None:
        """The metric of each item in the dataset's order, None for an item without one.

        Returns None if the metric is not a mean over items.
        """
        del found
        return None

    def conditions(self) -> dict[str, Any]:
        """The conditions beside model and split that are printed and written with the metrics."""
        return {}

    def details(self, found: Sequence[Any]) -> dict[str, Any]:
        """Details to write with the metrics, such as a row per item."""
        del found
        return {}

    def table(self, found: Sequence[Any]) -> "Table | None":
        """A table to print below the line."""
        del found
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


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A comparison on generated data; it takes minutes and needs no network connection."""

    recipe: str
    """The shipped recipe."""
    plans: tuple[str, ...]
    """The plans to compare."""
    about: str
    """What it shows: `digits in motion`."""
    folder: str
    """The default output folder."""
    seeds: int
    """The default number of seeds."""
    margin: float | None = None
    """The non-inferiority margin, in the unit of the measure's differences; by default the measure's."""
    as_data: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Converts the data of the comparison to what `--json` prints."""
    make: "Callable[[Path, Progress], Sequence[str]]" = lambda folder, progress: ()
    """Generates the data in a folder; returns the recipe overrides that point to it."""
    draw: "Callable[[Mapping[str, Path], Path], None]" = lambda runs, folder: None
    """Draws the output of the trained models. Called with one run folder per plan, and the folder to write to."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of `vcycle check`."""

    folder: "Location"
    recipe: str | None
    """The recipe's name, if one is given."""
    overrides: Sequence[str]
    """Changes to the recipe's section `data`, among them the layout."""
    quick: bool
    """Whether to read packets without decoding."""
    workers: int | None
    timeout: float | None
    """The command-line value."""
    patience: float
    """Seconds without progress after which a file counts as unreadable."""


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """The options of `vcycle prepare` in any format."""

    data: str
    out: "Location"
    to: str
    workers: int | None
    dry_run: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class Preparer:
    """A format of `vcycle prepare`."""

    about: str
    """What it writes: `uncompressed frames`."""
    function: str
    """``module:function``. It is called with `PrepareOptions` and its own options: keyword-only parameters that typer
    reads. It returns the share of files that failed. Its module imports no torch."""


class Task(ABC, Generic[R, F]):
    """Base class of tasks. A subclass sets its recipe, plans, models and data; the defaults suit simple tasks."""

    name: ClassVar[str]
    """The value of a recipe's `task` key."""
    recipe: ClassVar[type[RecipeBase]]
    """The schema of its recipes."""
    recipes: ClassVar[str | None] = None
    """The package with its shipped recipes, in folders."""
    plans: ClassVar[Registry[PlanSpec]]
    """Its plans by name; `constant` is one of them."""
    models: "ClassVar[ModelRegistry | None]" = None
    """Its models by name, and what it asks of them; None for a task whose networks recipes do not choose."""
    layouts: ClassVar[LayoutRegistry | None] = None
    """The layouts of its datasets; None for a task without such a choice."""
    compared: ClassVar[tuple[str, ...]] = ("constant",)
    """The plans that `vcycle compare` trains by default."""
    measures: ClassVar[tuple[Measure, ...]]
    """The metrics that it supports."""
    commands: ClassVar[Mapping[str, str]] = {}
    """Task-specific commands: maps a name to `module:function`."""
    eval_options: ClassVar[str | None] = None
    """``module:function``, whose keyword-only parameters are options of `vcycle eval`, as typer reads them. It returns
    overrides of the recipe. Its module imports no torch."""
    preparers: ClassVar[Mapping[str, Preparer]] = {}
    """Formats of `vcycle prepare --to NAME`."""
    importers: ClassVar[Mapping[str, str]] = {}
    """Importers of other tools' configurations for `vcycle import`: maps a tool to ``module:attribute`` of a
    `vcycle.tasks.importing.Importer`."""
    demo: ClassVar[Demo | None] = None
    scale: ClassVar[int] = 1
    """Ratio of the sides of the largest images to the sides of a plan's shapes."""
    free_keys: ClassVar[tuple[str, ...]] = ()
    """Recipe keys of this task that a resume may change, beside those of every task: they do not change the result."""
    brought: ClassVar[tuple[str, ...]] = ()
    """Recipe keys whose defaults are those of the initial weights' training, if known: a value per channel each."""

    # Planning. These methods import no torch.

    @abstractmethod
    def find(self, recipe: R, work: "Path", progress: Progress = lambda *_: None) -> Splits[F]:
        """Find the recipe's data; generate an embedded dataset under `work`.

        Raises:
            RecipeError: if the recipe sets no data.
            DataError: if the data is missing or malformed.
        """

    @abstractmethod
    def baseline(self, recipe: R, samples: int | None) -> Baseline:
        """The recipe's baseline of constant shape, for a training set with this number of samples.

        Raises:
            RecipeError: if the length of the training set is needed and unknown, or the training is too short.
        """

    @abstractmethod
    def check_plan(self, recipe: R, plan: Plan) -> None:
        """Check that the recipe's model and sampling support every shape of a plan.

        Raises:
            PlanError: if they do not support a shape; names its first stage and step.
            RecipeError: for an unknown model or option.
        """

    def plan(self, recipe: R, samples: int | None = None, name: str | None = None) -> Plan:
        """Build the plan of that name, by default the recipe's own; see `vcycle.tasks.plans`.

        Raises:
            RecipeError: for an unknown name.
            PlanError: if the plan cannot be built.
        """
        return build_plan(self.plans, recipe, self.baseline(recipe, samples), recipe.plan if name is None else name)

    def length(self, recipe: R) -> int | None:
        """Length of the training set if the recipe states it, else None."""
        del recipe
        return None

    def outputs(self, recipe: R) -> int:
        """Number of classes of the model if no data is available; 0 for a task without classes."""
        del recipe
        return 0

    def measure(self, recipe: R) -> Measure:
        """The metric of the recipe."""
        del recipe
        return self.measures[0]

    def check(self, recipe: R, splits: Splits[F], *, fresh: bool) -> list[str]:
        """Check that the recipe can be trained on its data, before the run folder is created.

        Args:
            recipe: The recipe.
            splits: Its data.
            fresh: Whether the training starts from step 0, instead of resuming.

        Returns:
            Notes about the data for the user, such as clips that will be replaced.

        Raises:
            RecipeError: if the recipe is wrong.
            DataError: if the data is wrong.
        """
        del recipe, splits, fresh
        return []

    def describe(self, recipe: R, splits: Splits[F]) -> str:
        """Describe the data in one line."""
        del recipe
        return f"{len(splits.train):,} training items and {len(splits.val):,} validation items"

    def owns(self, folder: "Path") -> bool:
        """Whether a folder holds data that this task, and no other, has prepared."""
        del folder
        return False

    def check_files(
        self, recipe: R | None, options: CheckOptions, progress: Progress, on_message: Callable[[str], None]
    ) -> "tuple[CheckReport, str]":
        """Check the files of a dataset, for `vcycle check`.

        Args:
            recipe: The recipe for the data; None for a folder that the task `owns`.
            options: The options of the command.
            progress: Called with the progress.
            on_message: Called with notes for the user.

        Returns:
            The report, and the name of one item.
        """
        del recipe, options, progress, on_message
        raise RecipeError(f"task {self.name} cannot check its files")

    def video_files(self, recipe: R) -> "Mapping[str, VideoList]":
        """The video files in the recipe's data, by split."""
        del recipe
        raise RecipeError(f"task {self.name} has no list of videos")

    def grids(self, recipe: R) -> "GridSampler":
        """The sampler of clips from videos."""
        del recipe
        raise RecipeError(f"task {self.name} does not sample grids from videos")

    def unopenable(self, recipe: R, splits: Splits[F], progress: Progress) -> Mapping[str, str]:
        """Training items that cannot be opened, with the reason; the training leaves them out.

        Raises:
            DataError: if there are more of them than `run.bad_limit` allows.
        """
        del recipe, splits, progress
        return {}

    def reference(self, recipe: R, found: F, measured: float | None) -> Reference | None:
        """What a split gives without training, such as the chance level; None if the task knows of nothing.

        Args:
            recipe: The recipe.
            found: The split.
            measured: What evaluations of the split measured without training, by `Measure.reference_key`.
        """
        del recipe, found, measured
        return None

    def embedded_data(self, recipe: R, work: "Path") -> Section | None:
        """The data section of a run on an embedded dataset, with the path of that dataset; None for other data."""
        del recipe, work
        return None

    def notices(self, recipe: R, splits: Splits[F], plan: Plan | None) -> list[str]:
        """Notes for the user before the training starts: on the data, then those of `plan_notices`."""
        return [] if plan is None else self.plan_notices(recipe, plan, len(splits.train))

    def plan_notices(self, recipe: R, plan: Plan, samples: int | None) -> list[str]:
        """Notes on a plan that need no data.

        Args:
            recipe: The recipe.
            plan: Its plan.
            samples: Length of the training set; None if only the recipe states it.
        """
        del recipe, plan, samples
        return []

    # Training and evaluation.

    @abstractmethod
    def dataset(
        self, recipe: R, splits: Splits[F], split: str, work: "Path", progress: Progress = lambda *_: None
    ) -> Any:
        """The dataset of a split for `vcycle.loader`; its caches are stored under `work`."""

    @abstractmethod
    def build_model(self, recipe: R, classes: int, *, download: bool = True) -> "nn.Module":
        """Build the recipe's model, initialised with `run.seed`. Pretrained weights are fetched only if `download`."""

    @abstractmethod
    def objective(self, recipe: R, classes: int) -> "Objective":
        """The loss, and how a batch is fed to the model."""

    def training_objective(self, recipe: R, splits: Splits[F]) -> "Objective":
        """The objective of a training on this data; by default `objective`."""
        return self.objective(recipe, len(splits.classes))

    @abstractmethod
    def evaluator(self, recipe: R, dataset: Any, classes: Sequence[str], *, final: bool) -> Evaluator:
        """Build the evaluator: the full protocol for a trained model (`final`), or the cheap one of validations."""

    @abstractmethod
    def result(self, **fields: Any) -> "EvalResult":
        """Build an evaluation result from its fields, as read from a log."""

    # Use of a trained model, from Python: `vcycle.load`.

    def predict(
        self,
        loaded: "LoadedModel",
        videos: "Sequence[VideoInput]",
        options: "PredictOptions",
    ) -> "Iterator[Prediction]":
        """Predict the classes of videos, for `LoadedModel.predict` and `predict_windows`.

        Yields:
            Of each video in order, its prediction or those of its windows.

        Raises:
            VcycleError: if the task has no classes.
        """
        raise VcycleError(f"a {self.name} model predicts no classes")

    def upscale(
        self,
        loaded: "LoadedModel",
        video: "VideoInput",
        out: "Path | None",
        options: "UpscaleOptions",
    ) -> "Tensor | None":
        """Enlarge a video, for `LoadedModel.upscale`.

        Raises:
            VcycleError: if the task enlarges nothing.
        """
        raise VcycleError(f"a {self.name} model does not enlarge videos")

    # The page of a run.

    def details(self, evaluation: Mapping[str, Any]) -> Sequence[Detail]:
        """What the page of a run shows of an evaluation beside its numbers. Imports no torch.

        Args:
            evaluation: What `vcycle eval` has written: the numbers, and `Evaluator.details`.
        """
        del evaluation
        return ()

    def frames(
        self, recipe: R, splits: Splits[F], split: str, items: Sequence[str], *, count: int, side: int
    ) -> "Mapping[str, NDArray[uint8]]":
        """Frames of some items, to show on a page: uint8 `(frames, height, width, 3)`, without those that are missing.

        Args:
            recipe: The recipe.
            splits: Its data.
            split: The split that the items are in.
            items: The items, as an evaluation names them.
            count: The number of frames of each.
            side: The largest side in pixels.
        """
        del recipe, splits, split, items, count, side
        return {}

    def load_weights(self, model: "nn.Module", weights: "Weights", recipe: R) -> None:
        """Load a trained model's weights, in place.

        Raises:
            CheckpointError: if they do not fit.
        """
        from vcycle.nn.weights.matching import load_matching

        del recipe
        load_matching(model, weights)

    def init_weights(
        self, model: "nn.Module", recipe: R, classes: Sequence[str], on_message: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Load the recipe's initial weights, in place. A model on the meta device is only checked.

        Returns:
            Whether the whole model was loaded.

        Raises:
            CheckpointError: if they cannot be read, or do not fit.
        """
        from pathlib import Path

        from vcycle.nn.weights.files import read_weights
        from vcycle.nn.weights.matching import load_matching

        del classes
        if recipe.init.path is None:
            return False
        load_matching(model, read_weights(Path(recipe.init.path)))
        on_message(f"init: weights from {recipe.init.path}")
        return True

    def prepare_model(self, model: "nn.Module", recipe: R) -> "nn.Module":
        """Freeze the parts that the recipe does not train."""
        del recipe
        return model

    def precise_bn(self, recipe: R) -> int | None:
        """Number of clips for precise BN before validations; None to use the running statistics of training."""
        del recipe
        return None

    def repeats(self, recipe: R) -> int:
        """Samples of each item in succession (repeated augmentation)."""
        del recipe
        return 1

    def balance(self, recipe: R, splits: Splits[F]) -> "Balance | None":
        """Groups of training items to draw more equally often; None to draw each item once per epoch."""
        del recipe, splits
        return None

    def role_of(self, recipe: R) -> Callable[[str], str | None]:
        """Maps a parameter's name to its role in the baseline, such as a part with its own LR."""
        del recipe
        return lambda _: None

    def monitor(self, model: "nn.Module") -> "Watched | None":
        """A value to watch after each step, beyond which training does not recover; None if there is none."""
        del model
        return None

    def input_facts(self, recipe: R) -> Mapping[str, Any]:
        """What the network's input must be, for a program that runs without vcycle: JSON, such as `mean` and `std`."""
        del recipe
        return {}

    def flop_counts(self) -> Mapping[Any, Callable[..., int]]:
        """FLOP counts of operators that PyTorch's FLOP counter does not support."""
        return {}


tasks: Registry[Task[Any, Any]] = Registry("task", "vcycle.tasks")
"""All tasks by name."""
tasks.register_lazily("recognition", "vcycle.tasks.recognition.task:RECOGNITION")
tasks.register_lazily("superresolution", "vcycle.tasks.superres.task:SUPERRESOLUTION")
tasks.register_lazily("images", "vcycle.tasks.images.task:IMAGES")


def register_task(task: Task[Any, Any]) -> Task[Any, Any]:
    """Add a task under its name.

    Raises:
        RecipeError: if the name is taken.
    """
    return tasks.register(task.name, task)


def register_plan(
    name: str, *, task: str = "recognition", options: type[Section] | None = None
) -> Callable[[Callable[[Any, Baseline, Any, float | None], Plan]], Callable[..., Plan]]:
    """Register a plan for a task; a decorator of the function that builds it.

    The function is called with the recipe, its baseline, the options, and the length from the plan's name (`NAME@2`,
    in lengths of the baseline; None without `@`). Recipes choose it with `plan: NAME`, and set its options under
    `plans.NAME`; `control:NAME` is its LR-matched control.

    Args:
        name: Name of the plan.
        task: Name of the task.
        options: The schema of its options.

    Raises:
        RecipeError: if the name is taken.
    """

    def register(build: Callable[[Any, Baseline, Any, float | None], Plan]) -> Callable[..., Plan]:
        tasks[task].plans.register(name, PlanSpec(build=build, section=name, options=options))
        return build

    return register


def register_layout(
    name: str,
    *,
    task: str = "recognition",
    splits: Callable[..., Iterable[str]] | Collection[str] = ("train", "val"),
    folds: int = 0,
    incomplete: bool = False,
) -> Callable[[C], C]:
    """Register a dataset layout for a task; a decorator of the function that reads a split of a folder.

    The function is called with the folder (a `Path`) and the split's name, and with those of the recipe's options that
    it takes by name. Recognition: `videos` (`data.root`), `fold`, `val_fraction`, and `check_files` (whether to look
    for each listed file); it returns a `vcycle.data.VideoList`. Super-resolution: `low` (`data.low`) and `degradation`;
    it returns `vcycle.tasks.superres.ClipPairs`. Recipes choose the layout with `data.layout: NAME`.

    Args:
        name: Name of the layout.
        task: Name of the task.
        splits: A function that returns the splits of a folder (`train`, `val`, `test`), none if the folder has another
            layout; `data.layout=auto` detects the layout with it. Or the splits that every folder has: such a layout
            is never detected.
        folds: Number of official folds.
        incomplete: Whether listed videos may have no file, and are left out.

    Raises:
        RecipeError: if the name is taken, or the task has no layouts.
    """

    def register(read: C) -> C:
        layouts = tasks[task].layouts
        if layouts is None:
            raise RecipeError(f"layout {name!r}: task {task} has no layouts")
        if name == AUTO:
            raise RecipeError(f"layout {name!r} stands for the layout that is recognised: choose another name")
        layouts.register(name, Layout(read=read, splits=splits, folds=folds, incomplete=incomplete))
        return read

    return register


def measures() -> dict[str, Measure]:
    """The metrics of all tasks, by name."""
    found: dict[str, Measure] = {}
    for task in tasks.values():
        for measure in task.measures:
            found.setdefault(measure.name, measure)  # tasks that share a measure differ in what its samples are called
    return found
