"""Defines the recognition task: video classification (Wu et al. 2020)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vcycle.data.layouts import LAYOUTS, VideoList
from vcycle.data.layouts.splits import WHOLE
from vcycle.plan import Plan
from vcycle.tasks.base import CheckOptions, Demo, Measure, Preparer, Progress, Splits
from vcycle.tasks.classification.plans import plans_for
from vcycle.tasks.classification.task import ClassificationTask, decoded, percentage
from vcycle.tasks.recognition.advice import next_steps
from vcycle.tasks.recognition.data import (
    check_videos,
    every_video,
    find_videos,
    layout_in,
    left_out,
    without_digits,
)
from vcycle.tasks.recognition.models import MODELS
from vcycle.tasks.recognition.notices import notices
from vcycle.tasks.recognition.recipe import RecognitionRecipe

if TYPE_CHECKING:
    from torch import nn

    from vcycle.data import CheckReport, FrameSource
    from vcycle.nn.weights.files import Weights

__all__ = ["RECOGNITION", "RecognitionTask"]


def _demo_data(data: dict[str, Any]) -> dict[str, Any]:
    """The demo's comparison with accuracies, and with fixed names for the best plan and its control."""
    arms = {
        name: arm | {"accuracy": arm["value"], "accuracy_std": arm["value_std"]} for name, arm in data["arms"].items()
    }
    named = {"control": data["control"], "multigrid": data["plan"]}
    return data | {"arms": arms | {name: arms[arm] for name, arm in named.items() if arm is not None}}


class RecognitionTask(ClassificationTask[RecognitionRecipe]):
    """Video classification: one class per video or, with `training.multi_label`, any number."""

    name = "recognition"
    recipe = RecognitionRecipe
    recipes = "vcycle.tasks.recognition.recipes"
    plans = plans_for("recognition")
    models = MODELS
    layouts = LAYOUTS
    compared = ("constant", "long+short", "cascade")
    item = "video"
    measures = (
        percentage("top-1", "top1", "accuracy", "videos", is_share=True),
        percentage("mAP", "map", "mAP", "videos", is_share=False),
    )
    commands: ClassVar[Mapping[str, str]] = {"predict": "vcycle.tasks.classification.commands:predict"}
    eval_options = "vcycle.tasks.classification.commands:eval_options"
    preparers: ClassVar[Mapping[str, Preparer]] = {
        to: Preparer(about=about, function="vcycle.tasks.recognition.prepare:prepare_videos")
        for to, about in (("video", "H.264 files"), ("array", "uncompressed frames"))
    }
    importers: ClassVar[Mapping[str, str]] = {
        "PySlowFast": "vcycle.tasks.recognition.importing.pyslowfast:PYSLOWFAST",
        "MMAction2": "vcycle.tasks.recognition.importing.mmaction2:MMACTION2",
    }
    demo = Demo(
        recipe="demo/digits",
        plans=("constant", "control:cascade", "cascade"),
        about="digits in motion",
        folder="vcycle-demo",
        seeds=4,
        margin=1.5,
        as_data=_demo_data,
    )
    free_keys = (
        "data.layout",
        "data.fold",
        "data.root",
        "data.clips",
        "data.val_fraction",
        "evaluation.clips",
        "evaluation.crops",
        "evaluation.combine",
    )

    def find(self, recipe: RecognitionRecipe, work: Path, progress: Progress = lambda *_: None) -> Splits[VideoList]:
        """Find the recipe's videos, or generate the embedded dataset."""
        return find_videos(recipe, work, progress)

    def length(self, recipe: RecognitionRecipe) -> int | None:
        """Length of the training set if the recipe states it, else None."""
        return recipe.data.clips if recipe.data.digits is None else recipe.data.digits.train_clips

    def outputs(self, recipe: RecognitionRecipe) -> int:
        """Number of classes of the embedded dataset; 400, as in Kinetics, for other data."""
        digits = recipe.data.digits
        return 400 if digits is None else len(digits.digits) * len(digits.motions)

    def measure(self, recipe: RecognitionRecipe) -> Measure:
        """Accuracy, or mAP for multi-label videos."""
        return self.measures[1 if recipe.training.multi_label else 0]

    def check_items(self, recipe: RecognitionRecipe, splits: Splits[VideoList]) -> None:
        """Check that the videos fit the task and the cache."""
        check_videos(recipe, splits)

    def check_files(
        self,
        recipe: RecognitionRecipe | None,
        options: CheckOptions,
        progress: Progress,
        on_message: Callable[[str], None],
    ) -> "tuple[CheckReport, str]":
        """Decode every video."""
        assert recipe is not None  # this task owns no folder
        listed = every_video(without_digits(recipe), cut=False, vanished=True)
        for note in left_out(listed.values()):
            on_message(note)
        layout = layout_in(recipe)
        if list(listed) == ["train"] and layout == "folder":
            listed = {WHOLE: listed["train"]}  # of which training keeps a part for validation
        return decoded(listed, options, progress, lambda found: next_steps(found, recipe, layout, options)), "file"

    def video_files(self, recipe: RecognitionRecipe) -> Mapping[str, VideoList]:
        """The videos, whether or not their files exist."""
        return every_video(without_digits(recipe))

    def unopenable(self, recipe: RecognitionRecipe, splits: Splits[VideoList], progress: Progress) -> Mapping[str, str]:
        """Videos whose header cannot be read."""
        from vcycle.tasks.recognition.unopenable import unopenable

        return unopenable(recipe, splits, progress)

    def notices(self, recipe: RecognitionRecipe, splits: Splits[VideoList], plan: Plan | None) -> list[str]:
        """Notes on videos left out or in two splits, frames that are too small, and a training made longer."""
        return [*notices(recipe, splits), *super().notices(recipe, splits, plan)]

    def source(self, recipe: RecognitionRecipe, found: VideoList, split: str, work: Path) -> "FrameSource":
        """Prepared copies, files or folders of frames."""
        from vcycle.tasks.recognition.sources import source_of

        return source_of(recipe, found, split, work)

    def load_weights(self, model: "nn.Module", weights: "Weights", recipe: RecognitionRecipe) -> None:
        """Load weights with the parameter names of vcycle, PySlowFast or pytorchvideo."""
        from vcycle.tasks.recognition.weights.loading import load_pretrained

        load_pretrained(model, weights, name=recipe.model.name)

    def init_weights(
        self,
        model: "nn.Module",
        recipe: RecognitionRecipe,
        classes: Sequence[str],
        on_message: Callable[[str], None] = lambda _: None,
    ) -> bool:
        """Load pretrained weights; the classifier is loaded too, or new."""
        from vcycle.tasks.recognition.init_weights import initialise

        taken = initialise(model, recipe, classes, on_message)
        return taken is not None and recipe.init.head == "keep"


RECOGNITION = RecognitionTask()
