"""What a study asks of a recipe's task, and the two tasks' answers."""

from collections.abc import Callable
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from vcycle.bench.measure import MEASURES, Measure
from vcycle.plan import Plan
from vcycle.tasks.recipes import AnyRecipe, dump_recipe, with_absolute_paths
from vcycle.tasks.recognition.recipe import Recipe
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.train.run import RunFolder

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vcycle.tasks.recognition import Scores
    from vcycle.tasks.recognition.build import Splits
    from vcycle.train.outcome import Fitted, StepReport

__all__ = ["Subject", "Tested", "measure_of", "subject_of"]

Progress = Callable[[str, int, int], None]
Tell = Callable[[str], None]
AnyTask = TypeVar("AnyTask", Recipe, SuperresRecipe)
OnStep = Callable[["StepReport"], None]


class Tested(NamedTuple):
    """What a model does on the test split."""

    value: float
    """The task's number."""
    each: list[float | None] | None
    """The same of each video or clip, in the split's order; None for one that could not be read or has no such number,
    and altogether where the number is no mean over them."""


class Subject(Protocol):
    """A recipe with its data found."""

    def plan(self, name: str) -> Plan:
        """The plan of that name, checked against what the model needs. Needs no torch."""
        ...

    def prepare(self) -> None:
        """Check what training begins with, and make what all runs share, such as a cache of frames."""
        ...

    def train(self, name: str, plan: Plan, seed: int, run: RunFolder, on_step: OnStep, on_message: Tell) -> "Fitted":
        """Train under the plan of that name, or go on with what the folder holds."""
        ...

    def test(self, model: "nn.Module", device: "torch.device") -> Tested | None:
        """Evaluate on the test split; None if there is none."""
        ...


def measure_of(recipe: AnyRecipe) -> Measure:
    """What a recipe's trainings are judged by."""
    if isinstance(recipe, SuperresRecipe):
        return MEASURES["PSNR"]
    return MEASURES["mAP" if recipe.training.multi_label else "top-1"]


def subject_of(recipe: AnyRecipe, out: Path, on_progress: Progress, on_message: Tell) -> Subject:
    """Find a recipe's data.

    Args:
        recipe: Of either task.
        out: Folder for embedded sets and caches.
        on_progress: Told of work: what, how much, of how much.
        on_message: Told what a user should know.

    Raises:
        RecipeError: if the recipe names no data.
        DataError: if it is not there, or not as it should be.
    """
    if isinstance(recipe, SuperresRecipe):
        return _Restoration(recipe, on_progress, on_message)
    return _Recognition(recipe, out, on_progress, on_message)


class _Recognition:
    def __init__(self, recipe: Recipe, out: Path, on_progress: Progress, on_message: Tell) -> None:
        from vcycle.tasks.recognition.data import find_videos
        from vcycle.tasks.recognition.notices import notices

        self._recipe, self._out, self._on_progress, self._on_message = recipe, out, on_progress, on_message
        self._videos = find_videos(recipe, out, on_progress)
        self._splits: Splits | None = None
        for note in notices(recipe, self._videos):
            on_message(note)

    def plan(self, name: str) -> Plan:
        from vcycle.tasks.recognition.build import check_plan
        from vcycle.tasks.recognition.plans import plan_of

        plan = plan_of(self._recipe, len(self._videos.train), name)
        check_plan(self._recipe, plan)
        return plan

    def prepare(self) -> None:
        from vcycle.tasks.recognition.init_weights import check_init

        if self._recipe.init.path is not None:
            check_init(self._recipe, self._videos.train.classes)
        self._datasets()

    def train(self, name: str, plan: Plan, seed: int, run: RunFolder, on_step: OnStep, on_message: Tell) -> "Fitted":
        from vcycle.tasks.recognition.build import train

        recipe, data = self._recipe, self._recipe.data
        if data.digits is not None and data.path is None:  # made here, and to be found from the run's folder
            recipe = recipe.model_copy(update={"data": data.model_copy(update={"path": str(self._out / "digits")})})
        train = partial(train, on_progress=self._on_progress)
        return _trained(train, _own(recipe, name, seed), plan, self._datasets(), run, on_step, on_message)

    def test(self, model: "nn.Module", device: "torch.device") -> Tested | None:
        from vcycle.tasks.recognition.evaluate import evaluator

        dataset = self._datasets().test
        if dataset is None:
            return None
        scores: list[Scores] = []
        evaluate = evaluator(self._recipe, dataset, self._on_message, scores.append, on_progress=self._on_progress)
        found = evaluate(model, device)
        return Tested(found.value, _recognised(scores[0], len(dataset)))

    def _datasets(self) -> "Splits":
        from vcycle.tasks.recognition.build import datasets_of

        if self._splits is None:
            self._splits = datasets_of(self._recipe, self._videos, self._out, self._on_progress)
        return self._splits


class _Restoration:
    def __init__(self, recipe: SuperresRecipe, on_progress: Progress, on_message: Tell) -> None:
        from vcycle.tasks.superres.data import find_clips
        from vcycle.tasks.superres.notices import notices

        self._recipe, self._on_progress, self._on_message = recipe, on_progress, on_message
        self._clips = find_clips(recipe)
        for note in notices(self._clips):
            on_message(f"warning: {note}")

    def plan(self, name: str) -> Plan:
        from vcycle.tasks.superres.notices import never_learning
        from vcycle.tasks.superres.plans import check_plan, plan_of

        plan = plan_of(self._recipe, len(self._clips.train), name)
        check_plan(self._recipe, plan)
        for note in never_learning(self._recipe, plan):
            self._on_message(f"warning: {note}")
        return plan

    def prepare(self) -> None:
        from vcycle.tasks.superres.init_weights import check_init
        from vcycle.tasks.superres.notices import check_clips

        for note in check_clips(self._recipe, self._clips):
            self._on_message(f"warning: {note}")
        check_init(self._recipe)

    def train(self, name: str, plan: Plan, seed: int, run: RunFolder, on_step: OnStep, on_message: Tell) -> "Fitted":
        from vcycle.tasks.superres.build import train

        train = partial(train, on_progress=self._on_progress)
        return _trained(train, _own(self._recipe, name, seed), plan, self._clips, run, on_step, on_message)

    def test(self, model: "nn.Module", device: "torch.device") -> Tested | None:
        from vcycle.data import Replacement
        from vcycle.tasks.superres import quality_of
        from vcycle.tasks.superres.build import dataset_of
        from vcycle.tasks.superres.evaluate import measured, measuring_of

        if self._clips.test is None:
            return None
        tell = partial(self._on_progress, "restoring frames")
        dataset = dataset_of(self._recipe, self._clips.test)
        found = list(measured(self._recipe, dataset, model, device, progress=tell))
        for bad in found:
            if isinstance(bad, Replacement):
                self._on_message(f"bad clip {bad.path}: {bad.cause}; left out of the evaluation")
        ratios = [None if isinstance(clip, Replacement) else clip.quality.psnr for clip in found]
        # A clip that equals the truth has no finite PSNR, and is not in the mean.
        each = [ratio if ratio is not None and isfinite(ratio) else None for ratio in ratios]
        return Tested(quality_of(found, measuring_of(self._recipe)).value, each)


def _own(recipe: AnyTask, name: str, seed: int) -> AnyTask:
    """The recipe of one run, which is written beside it and can be evaluated from there."""
    run = recipe.run.model_copy(update={"seed": seed})
    return with_absolute_paths(recipe.model_copy(update={"plan": name, "run": run}))


def _trained(
    train: Callable[..., "Fitted"],
    own: AnyRecipe,
    plan: Plan,
    data: object,
    run: RunFolder,
    on_step: OnStep,
    on_message: Tell,
) -> "Fitted":
    """What training a recipe in a run's folder gives, or going on with what is there."""
    return train(
        own, plan, data, run, text=dump_recipe(own), resume=run.started, on_step=on_step, on_message=on_message
    )


def _recognised(scores: "Scores", videos: int) -> list[float | None] | None:
    """1 for each of the videos that was recognised, 0 for others; None for those that could not be read."""
    if scores.labels.ndim > 1:
        return None
    right = dict(zip(scores.videos.tolist(), (scores.scores.argmax(1) == scores.labels).int().tolist(), strict=True))
    return [right.get(video) for video in range(videos)]
