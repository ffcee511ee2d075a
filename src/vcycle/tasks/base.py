"""What a task is: all that training, evaluation, comparison and export ask of it.

A task is one object in one folder. What is the same for every task (the flow of `train`, `eval`, `compare`, `bench`,
`export`) is in `vcycle.runs`, `vcycle.bench` and `vcycle.cli`, which know no task by name. Nothing here imports torch:
planning answers at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from vcycle.config.recipe import RecipeBase
from vcycle.data.layouts.layout import AUTO, Layout, LayoutRegistry
from vcycle.errors import RecipeError
from vcycle.plan import Baseline, Plan, Shape
from vcycle.registry import Registry
from vcycle.section import Section
from vcycle.tasks.chance import Chance
from vcycle.tasks.plans import PlanSpec, build_plan

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from matplotlib.figure import Figure
    from rich.table import Table
    from torch import nn

    from vcycle.data import CheckReport, GridSampler, Replacement, VideoList
    from vcycle.nn.weights.files import Weights
    from vcycle.tasks.models import ModelRegistry
    from vcycle.train.log import Watched
    from vcycle.train.objective import Objective
    from vcycle.train.outcome import Evaluation

__all__ = [
    "SPLITS",
    "CheckOptions",
    "Demo",
    "Evaluator",
    "Found",
    "Measure",
    "PrepareOptions",
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
"""Called with what is being done, how much of it is done, and how much there is."""
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R", bound=RecipeBase)
F = TypeVar("F", bound="Found")


class Found(Protocol):
    """The videos, clips or pictures of one split, found but not decoded."""

    @property
    def source(self) -> "Path | str":
        """Where they were found."""
        ...

    def __len__(self) -> int:
        """How many."""
        ...

    def digest(self) -> dict[str, Any]:
        """What identifies them wherever they are stored: `videos` (how many) and hashes of names and labels."""
        ...


class Splits(Generic[F]):
    """The data of a recipe, by split; each is read when it is first asked for."""

    def __init__(
        self, read: Callable[[Split], F], has: Collection[str], *, source: str, layout: str = "folder"
    ) -> None:
        """Hold what reads the splits.

        Args:
            read: Reads one.
            has: Those that are there.
            source: Where the data was found, for messages.
            layout: The layout it was found in.
        """
        self._read = read
        self._has = has
        self._source = source
        self.layout = layout
        self._found: dict[str, F] = {}

    def __contains__(self, split: str) -> bool:
        """Whether there is such a split."""
        return split in self._has

    def __getitem__(self, split: str) -> F:
        """One split.

        Raises:
            RecipeError: if there is no such split.
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
        """Leave items out of the training split, which has a method `without` for that."""
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
        """Names of the classes, where the data has classes."""
        return tuple(getattr(self.train, "classes", ()))


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The number that a task is judged by; higher is better."""

    name: str
    """As an evaluation calls it: `top-1`."""
    key: str
    """The field of an evaluation that holds it: `top1`."""
    words: str
    """As a table calls it: `accuracy`."""
    unit: str
    """Written after a value."""
    points: str
    """Written after a difference."""
    scale: float
    """A value is multiplied by it to be written."""
    digits: int
    """Decimals."""
    margin: float
    """The usual non-inferiority margin, in the number's own scale."""
    samples: str
    """What it is the mean over: `videos`."""

    def text(self, value: float) -> str:
        """A value for people.

        Example:
            >>> accuracy = Measure(name="top-1", key="top1", words="accuracy", unit="%", points="points", scale=100.0,
            ...                    digits=1, margin=0.01, samples="videos")
            >>> accuracy.text(0.9876)
            '98.8 %'
        """
        return f"{self.scale * value:.{self.digits}f} {self.unit}"


class Evaluator(ABC):
    """Evaluates models on one dataset, item by item: a share of the items on each rank, the result from all of them."""

    doing: ClassVar[str] = "evaluating"
    """What progress is reported as."""
    item: ClassVar[str] = "item"
    """What one item is: `video`, `clip`."""

    on_fault: Callable[[str], None]
    """Called with what is wrong with an item that counts all the same, such as a cut file; once for each in an
    evaluation."""

    def __init__(self) -> None:
        """Report no faults, unless `on_fault` is set."""
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
        """Evaluate a rank's share; what comes of an item, or why it could not be read."""

    @abstractmethod
    def at(self, shape: Shape) -> "Evaluator":
        """The evaluator of clips of this shape, as a stage of training takes them, rather than of full resolution."""

    @abstractmethod
    def result(self, found: Sequence[Any]) -> "Evaluation":
        """What all ranks found, as numbers.

        Raises:
            DataError: if no item could be read.
        """

    def line(self, result: "Evaluation", split: str) -> str:
        """The result in a line, with its protocol."""
        return f"{result.headline} on {split}"

    def warning(self, result: "Evaluation") -> str | None:
        """What is wrong with a result that looks like one: that it is worse than doing nothing."""
        del result
        return None

    def per_item(self, found: Sequence[Any]) -> list[float | None] | None:
        """The measure of each item in the dataset's order, None for one without; None if it is no mean over items."""
        del found
        return None

    def conditions(self) -> dict[str, Any]:
        """What was evaluated on, beside model and split, to be printed and written with the numbers."""
        return {}

    def details(self, found: Sequence[Any]) -> dict[str, Any]:
        """What is written beside the numbers, such as a row for each item."""
        del found
        return {}

    def table(self, found: Sequence[Any]) -> "Table | None":
        """A table to print below the line."""
        del found
        return None

    def check_figure(self) -> None:
        """Check that a figure can be drawn, before hours of evaluation.

        Raises:
            RecipeError: if it cannot.
        """
        raise RecipeError("--figure: there is no figure of this evaluation")

    def figure(self, found: Sequence[Any], title: str) -> "Figure":
        """Draw what was found."""
        raise NotImplementedError

    @property
    def suffix(self) -> str:
        """What the name of a result's file ends with: the views of each item."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A comparison on data made on the spot, in minutes and without a network."""

    recipe: str
    """The shipped recipe."""
    plans: tuple[str, ...]
    """What is compared."""
    title: str
    folder: str
    """Where, by default."""
    seeds: int
    """How many, by default."""
    fixed_names: bool = False
    """Whether `--json` also gives the best plan and its control as `multigrid` and `control`, and values as
    `accuracy`."""
    make: "Callable[[Path, Progress], Sequence[str]]" = lambda folder, progress: ()
    """Makes the data under a folder; returns overrides of the recipe that find it."""
    draw: "Callable[[Mapping[str, Path], Path], None]" = lambda runs, file: None
    """Draws what the trained networks do into a file, given the folder of a run of each plan."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How a dataset's files are checked."""

    folder: "Path"
    quick: bool
    """Whether to read packets alone."""
    workers: int | None
    timeout: float | None
    """As given."""
    patience: float
    """Seconds without progress after which a file is given up."""


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """How a dataset is prepared: the options of `vcycle prepare`, as given."""

    data: str
    out: "Path"
    to: str
    recipe: str | None
    layout: str | None
    overrides: Sequence[str] | None
    short_side: int | None
    levels: str | None
    scale: int | None
    degradation: str | None
    low: "Path | None"
    resize: str | None
    workers: int | None
    timeout: float | None
    dry_run: bool
    json: bool


class Task(ABC, Generic[R, F]):
    """One task. A subclass names its recipe, its plans, its models and its data; the defaults suit plain tasks."""

    name: ClassVar[str]
    """As a recipe's `task` has it."""
    recipe: ClassVar[type[RecipeBase]]
    """The schema of its recipes."""
    recipes: ClassVar[str | None] = None
    """The package that holds its shipped recipes, in folders."""
    plans: ClassVar[Registry[PlanSpec]]
    """Its plans by name; `constant` is one of them."""
    models: "ClassVar[ModelRegistry | None]" = None
    """Its models by name, and what it asks of them; None for a task whose networks recipes do not choose."""
    layouts: ClassVar[LayoutRegistry | None] = None
    """How its datasets may lie; None for a task without such a choice."""
    compared: ClassVar[tuple[str, ...]] = ("constant",)
    """The plans that `vcycle compare` trains by default."""
    measures: ClassVar[tuple[Measure, ...]]
    """What it can be judged by."""
    commands: ClassVar[Mapping[str, str]] = {}
    """Commands of its own: name, and `module:function`."""
    preparers: ClassVar[Mapping[str, str]] = {}
    """What `vcycle prepare --to NAME` writes: name, and `module:function` of `PrepareOptions` that returns the share of
    files that failed."""
    demo: ClassVar[Demo | None] = None
    scale: ClassVar[int] = 1
    """How many times larger than a plan's shapes the sides of the largest pictures are."""
    free_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of its sections that a resume may change, beside those that every task has: they change no result."""

    # What planning needs: no torch.

    @abstractmethod
    def find(self, recipe: R, work: "Path", progress: Progress = lambda *_: None) -> Splits[F]:
        """Find the recipe's data; embedded sets are made under `work`.

        Raises:
            RecipeError: if the recipe names none.
            DataError: if it is not there, or malformed.
        """

    @abstractmethod
    def baseline(self, recipe: R, samples: int | None) -> Baseline:
        """The recipe's training of constant shape, for a training set of so many samples.

        Raises:
            RecipeError: if the length of the training set is needed and unknown, or the training is too short.
        """

    @abstractmethod
    def check_plan(self, recipe: R, plan: Plan) -> None:
        """Check that the recipe's model and sampling can take every shape of a plan.

        Raises:
            PlanError: naming the first stage and step whose shape they cannot take.
            RecipeError: for an unknown model or option.
        """

    def plan(self, recipe: R, samples: int | None = None, name: str | None = None) -> Plan:
        """The plan of that name, by default the recipe's own; see `vcycle.tasks.plans`.

        Raises:
            RecipeError: for an unknown name.
            PlanError: if the plan cannot be built.
        """
        return build_plan(self.plans, recipe, self.baseline(recipe, samples), recipe.plan if name is None else name)

    def length(self, recipe: R) -> int | None:
        """Length of the training set where the recipe states it."""
        del recipe
        return None

    def outputs(self, recipe: R) -> int:
        """Classes of the model where no data is at hand; 0 for a task without classes."""
        del recipe
        return 0

    def measure(self, recipe: R) -> Measure:
        """What the recipe's trainings are judged by."""
        del recipe
        return self.measures[0]

    def check(self, recipe: R, splits: Splits[F], *, fresh: bool) -> list[str]:
        """Check before a run folder is made that the recipe can be trained on its data.

        Args:
            recipe: The recipe.
            splits: Its data.
            fresh: Whether the training starts, rather than resumes.

        Returns:
            What a user should know of the data, such as clips that will be replaced.

        Raises:
            RecipeError: if it cannot.
            DataError: if the data is at fault.
        """
        del recipe, splits, fresh
        return []

    def describe(self, recipe: R, splits: Splits[F]) -> str:
        """The data in a line."""
        del recipe
        return f"{len(splits.train):,} items, and {len(splits.val):,} more for validation"

    def owns(self, folder: "Path") -> bool:
        """Whether a folder holds what this task alone has prepared."""
        del folder
        return False

    def check_files(
        self, recipe: R | None, options: CheckOptions, progress: Progress, on_message: Callable[[str], None]
    ) -> "tuple[CheckReport, str]":
        """Look through the files of a dataset, for `vcycle check`.

        Args:
            recipe: The recipe that the data is meant for; None of a folder that the task `owns`.
            options: How.
            progress: Called with how far it is.
            on_message: Called with what a user should know.

        Returns:
            What was found, and what one file is called.
        """
        del recipe, options, progress, on_message
        raise RecipeError(f"task {self.name} has no check of its files")

    def video_files(self, recipe: R) -> "Mapping[str, VideoList]":
        """The video files that a recipe's data lists, by split."""
        del recipe
        raise RecipeError(f"task {self.name} has no list of videos")

    def grids(self, recipe: R) -> "GridSampler":
        """How clips are sampled from videos."""
        del recipe
        raise RecipeError(f"task {self.name} samples no grids from videos")

    def unopenable(self, recipe: R, splits: Splits[F], progress: Progress) -> Mapping[str, str]:
        """Items of the training split that cannot be opened, and why; they are left out of the training.

        Raises:
            DataError: if they are more than `run.bad_limit` allows.
        """
        del recipe, splits, progress
        return {}

    def chance(self, recipe: R, found: F) -> Chance | None:
        """What guessing scores on a split; None where there is no such level."""
        del recipe, found
        return None

    def embedded_data(self, recipe: R, work: "Path") -> Section | None:
        """The data section of a run on an embedded set, which names where it was made; None for other data."""
        del recipe, work
        return None

    def notices(self, recipe: R, splits: Splits[F], plan: Plan | None) -> list[str]:
        """What a user should know before the training starts."""
        del recipe, splits, plan
        return []

    # What training and evaluation need.

    @abstractmethod
    def dataset(
        self, recipe: R, splits: Splits[F], split: str, work: "Path", progress: Progress = lambda *_: None
    ) -> Any:
        """The dataset of a split, as `vcycle.loader` takes it; caches are kept under `work`."""

    @abstractmethod
    def build_model(self, recipe: R, classes: int, *, download: bool = True) -> "nn.Module":
        """The recipe's model, its weights drawn under `run.seed`; without `download` no pretrained ones are fetched."""

    @abstractmethod
    def objective(self, recipe: R, classes: int) -> "Objective":
        """The loss, and what a batch is to the model."""

    @abstractmethod
    def evaluator(self, recipe: R, dataset: Any, classes: Sequence[str], *, final: bool) -> Evaluator:
        """Evaluates on a dataset: the protocol of a finished training (`final`), or the cheap one of validations."""

    @abstractmethod
    def result(self, **fields: Any) -> "Evaluation":
        """A result of an evaluation from its fields, as a log has them."""

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
        """Load the weights that the recipe starts from, in place; a model on the meta device is only checked.

        Returns:
            Whether all of the model was loaded.

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
        """Freeze what is not trained."""
        del recipe
        return model

    def precise_bn(self, recipe: R) -> int | None:
        """Clips over which BatchNorm's statistics are recomputed before validations; None for training's own."""
        del recipe
        return None

    def role_of(self, recipe: R) -> Callable[[str], str | None]:
        """The role in the baseline of a parameter, by its name: parts with an LR of their own."""
        del recipe
        return lambda _: None

    def monitor(self, model: "nn.Module") -> "Watched | None":
        """A number of the step just done from which a training does not recover, if there is one."""
        del model
        return None

    def flop_counts(self) -> Mapping[Any, Callable[..., int]]:
        """FLOPs of operators that PyTorch's counter does not know."""
        return {}


tasks: Registry[Task[Any, Any]] = Registry("task", "vcycle.tasks")
"""All tasks by name."""
tasks.register_lazily("recognition", "vcycle.tasks.recognition.task:RECOGNITION")
tasks.register_lazily("superresolution", "vcycle.tasks.superres.task:SUPERRESOLUTION")


def register_task(task: Task[Any, Any]) -> Task[Any, Any]:
    """Add a task under its name.

    Raises:
        RecipeError: if the name is taken.
    """
    return tasks.register(task.name, task)


def register_plan(
    name: str, *, task: str = "recognition", options: type[Section] | None = None
) -> Callable[[Callable[[Any, Baseline, Any, float | None], Plan]], Callable[..., Plan]]:
    """Add a plan to a task, by decorating what builds it.

    The function is called with the recipe, its baseline, the options, and the length that the plan's name gives
    (`NAME@2`, in lengths of the baseline), None where it gives none. Recipes choose it with `plan: NAME`, and set its
    options under `plans.NAME`; `control:NAME` is its LR-matched control.

    Args:
        name: Of the plan.
        task: The task that it is for.
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
    """Add a dataset layout to a task, by decorating what reads a split of a folder.

    The function is called with the folder (a `Path`) and the split's name, and with those of the recipe's options that
    it takes by name. Recognition: `videos` (`data.root`), `fold`, `val_fraction`, and `check_files` (whether to look
    for each listed file); it returns a `vcycle.data.VideoList`. Super-resolution: `low` (`data.low`) and `degradation`;
    it returns `vcycle.tasks.superres.ClipPairs`. Recipes choose the layout with `data.layout: NAME`.

    Args:
        name: Of the layout.
        task: The task that it is for.
        splits: From a folder to the splits that it has (`train`, `val`, `test`), none where it lies in another way; by
            it `data.layout=auto` recognises folders. Or the splits of every such folder, which then has to be named.
        folds: How many official folds there are.
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
    """What any task is judged by, by name."""
    return {measure.name: measure for name in tasks for measure in tasks[name].measures}
