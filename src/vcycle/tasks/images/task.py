"""Defines the task of images: classification with progressive resizing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vcycle.data.layouts import VideoList
from vcycle.data.layouts.files import PICTURES
from vcycle.data.locations import local_path
from vcycle.plan import Plan
from vcycle.tasks.base import CheckOptions, Demo, Progress, Scope, Splits
from vcycle.tasks.classification.plans import plans_for
from vcycle.tasks.classification.task import ClassificationTask, decoded, percentage
from vcycle.tasks.images.data import check_images, every_image, find_images
from vcycle.tasks.images.models import MODELS
from vcycle.tasks.images.recipe import ImagesRecipe
from vcycle.tasks.next_steps import plan_steps

if TYPE_CHECKING:
    from torch import nn

    from vcycle.data import CheckReport
    from vcycle.tasks.images.evaluate import ImageEvaluator
    from vcycle.tasks.images.objective import ImageObjective

__all__ = ["IMAGES", "ImagesTask"]


class ImagesTask(ClassificationTask[ImagesRecipe]):
    """Image classification: an image is a clip of one frame, and plans are progressive resizing."""

    name = "images"
    recipe = ImagesRecipe
    recipes = "vcycle.tasks.images.recipes"
    plans = plans_for("images")
    models = MODELS
    compared = ("constant", "cascade")
    item = "image"
    frame_rate = 1.0
    measures = (percentage("top-1", "top1", "accuracy", "images", is_share=True),)
    commands: ClassVar[Mapping[str, str]] = {"predict": "vcycle.tasks.classification.commands:predict"}
    demo = Demo(
        recipe="demo/images",
        plans=("constant", "control:cascade", "cascade"),
        about="digits over textures",
        folder="vcycle-demo-images",
        seeds=3,
        margin=1.5,
    )
    free_keys = ("data.clips", "data.val_fraction", "evaluation.crops", "evaluation.combine")

    def find(self, recipe: ImagesRecipe, work: Path, progress: Progress = lambda *_: None) -> Splits[VideoList]:
        """Find the recipe's images, or generate the embedded dataset."""
        return find_images(recipe, work, progress)

    def length(self, recipe: ImagesRecipe) -> int | None:
        """Length of the training set if the recipe states it, else None."""
        digits = recipe.data.digits
        return recipe.data.clips if digits is None else 10 * digits.images.get("train", 0)

    def outputs(self, recipe: ImagesRecipe) -> int:
        """Number of classes of the embedded dataset; 1,000, as in ImageNet, for other data."""
        return 1000 if recipe.data.digits is None else 10

    def check_items(self, recipe: ImagesRecipe, splits: Splits[VideoList]) -> None:
        """Check that the images fit the recipe."""
        check_images(recipe, splits)

    def check_files(
        self,
        recipe: ImagesRecipe | None,
        options: CheckOptions,
        progress: Progress,
        on_message: Callable[[str], None],
    ) -> "tuple[CheckReport, str]":
        """Decode every image."""
        assert recipe is not None  # this task owns no folder
        listed = every_image(recipe, local_path(str(options.folder), "data"))
        for found in dict.fromkeys(images.beside for images in listed.values() if images.beside):
            on_message(found)
        name = options.recipe or "images/small"
        steps = plan_steps(name, options, "the plan of this recipe on the data, without training")
        return decoded(listed, options, progress, lambda _: steps, item=self.item, kind=PICTURES), "file"

    def notices(self, recipe: ImagesRecipe, splits: Splits[VideoList], plan: Plan | None) -> list[str]:
        """Notes on unused files, a training made longer, and the strength of the regularisation by size."""
        train = splits.train
        unused = [f"{train.source}: {train.beside}"] if train.beside else []
        return [*unused, *super().notices(recipe, splits, plan)]

    def init_weights(
        self,
        model: "nn.Module",
        recipe: ImagesRecipe,
        classes: Sequence[str],
        on_message: Callable[[str], None] = lambda _: None,
    ) -> bool:
        """Load the recipe's weights; the classifier is loaded too, or new."""
        from vcycle.tasks.images.init_weights import initialise

        return initialise(model, recipe, classes, on_message)

    def objective(self, recipe: ImagesRecipe, classes: int) -> "ImageObjective":
        """Cross-entropy, with mixup and label smoothing if the recipe sets them."""
        from vcycle.tasks.classification.evaluate import objective_of
        from vcycle.tasks.images.objective import ImageObjective

        return objective_of(recipe, classes, ImageObjective)

    def evaluator(
        self, recipe: ImagesRecipe, dataset: Any, classes: Sequence[str], *, scope: Scope
    ) -> "ImageEvaluator":
        """Accuracy over images, with the recipe's crops, or the center crop of each."""
        from vcycle.tasks.images.evaluate import ImageEvaluator

        return ImageEvaluator(recipe, dataset, classes, scope=scope)


IMAGES = ImagesTask()
