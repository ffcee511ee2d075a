"""Predicts the classes of files with a trained model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vcycle.data import Replacement, VideoDataset, VideoList
from vcycle.tasks.base import tasks
from vcycle.tasks.classification.eval_report import top_classes
from vcycle.tasks.classification.evaluate import views_of
from vcycle.tasks.classification.recipe import ClassificationRecipe
from vcycle.tasks.classification.sampling import grids_of
from vcycle.tasks.classification.task import ClassificationTask
from vcycle.tasks.loaded_model import LoadedModel, load_model
from vcycle.tasks.recipes import override_trained
from vcycle.train.ranks import Ranks
from vcycle.train.threads import use_threads

__all__ = ["Predictor", "open_classifier"]


def open_classifier(
    model: Path, overrides: Sequence[str], on_message: Callable[[str], None] = lambda _: None
) -> tuple[LoadedModel, ClassificationRecipe]:
    """Load a model and change its recipe; the arguments are those of ``Predictor``.

    Raises:
        CheckpointError, RecipeError: For the reasons of ``load_model``.
    """
    classifiers = [task.name for task in tasks.values() if isinstance(task, ClassificationTask)]
    loaded = load_model(model, on_message, accepted=classifiers)
    recipe = override_trained(loaded.recipe, overrides, str(model))
    assert isinstance(recipe, ClassificationRecipe)
    return loaded, recipe


class Predictor:
    """A trained model on its device."""

    def __init__(
        self, model: Path, overrides: Sequence[str], most: int, on_message: Callable[[str], None] = lambda _: None
    ) -> None:
        """Load a model.

        Args:
            model: The model, as for ``load_model``.
            overrides: Changes to its recipe.
            most: The most files at a time.
            on_message: Called with messages.

        Raises:
            CheckpointError, RecipeError: For the reasons of ``load_model``.
        """
        self.loaded, recipe = open_classifier(model, overrides, on_message)
        assert isinstance(self.loaded.task, ClassificationTask)
        self._task = self.loaded.task
        # At most one process per clip; but at least one, because a broken file may kill the process that reads it.
        workers = min(recipe.data.workers, most * views_of(recipe).clips)
        self._recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"workers": workers})})
        self._source = model
        self._device = Ranks().device(recipe.run.device, on_message)
        use_threads(recipe.run.threads, workers=workers, on_message=on_message)
        self._model = self.loaded.model.to(self._device)
        self.item = self._task.item
        """What a file is called: ``video`` or ``image``."""
        self.protocol = ""
        """The evaluation protocol in words, once files have been predicted."""

    def rows(
        self, paths: Sequence[str], top: int, on_fault: Callable[[str], None] = lambda _: None
    ) -> Iterator[dict[str, Any]]:
        """Yield for each file its path, and its classes with their scores or its error.

        Args:
            paths: Paths or URLs.
            top: Number of classes.
            on_fault: Called with each fault of a file that is used in spite of it.
        """
        listed = VideoList(
            root=Path(),
            paths=list(paths),
            labels=[0] * len(paths),
            classes=self.loaded.classes,
            source=self._source,
            frame_rate=self._task.frame_rate,
        )
        dataset = VideoDataset(listed, grids_of(self._recipe))
        damaged: dict[str, str] = {}

        def take(fault: str) -> None:
            on_fault(fault)
            path, _, what = fault.removeprefix(f"damaged {self.item} ").rpartition(": ")
            damaged[path] = what

        evaluator = self._task.evaluator(self._recipe, dataset, self.loaded.classes, final=True)
        evaluator.on_fault = take
        self.protocol = evaluator.protocol
        for found in evaluator.each(self._model, self._device):
            row: dict[str, Any] = {self.item: listed.paths[found.video]}
            if isinstance(found, Replacement):
                row["error"] = found.cause
            else:
                row["classes"] = top_classes(found.scores, self.loaded.classes, top)
            what = damaged.get(str(row[self.item]))
            yield row if what is None else row | {"damaged": what}
