"""Opens a classifier for a command: on its device, with the command's changes to its recipe."""

from collections.abc import Callable, Sequence
from pathlib import Path

from vcycle.tasks.base import tasks
from vcycle.tasks.classification.evaluate import views_of
from vcycle.tasks.classification.predictor import Predictor, predictor_of
from vcycle.tasks.classification.task import ClassificationTask
from vcycle.tasks.loaded_model import load_model
from vcycle.train.ranks import Ranks
from vcycle.train.threads import use_threads

__all__ = ["open_classifier", "open_predictor"]


def open_classifier(
    model: Path, overrides: Sequence[str], on_message: Callable[[str], None] = lambda _: None
) -> Predictor:
    """Load a model and change its recipe; the arguments are those of ``open_predictor``.

    Raises:
        CheckpointError, RecipeError: For the reasons of ``load_model``.
    """
    classifiers = [task.name for task in tasks.values() if isinstance(task, ClassificationTask)]
    return predictor_of(load_model(model, on_message, accepted=classifiers), overrides, str(model))


def open_predictor(
    model: Path, overrides: Sequence[str], most: int, on_message: Callable[[str], None] = lambda _: None
) -> Predictor:
    """Load a model onto its device, and set the number of compute threads.

    Args:
        model: The model, as for ``load_model``.
        overrides: Changes to its recipe.
        most: The most files at a time.
        on_message: Called with messages.

    Raises:
        CheckpointError, RecipeError: For the reasons of ``load_model``.
    """
    found = open_classifier(model, overrides, on_message)
    recipe = found.recipe
    workers = min(recipe.data.workers, most * views_of(recipe).clips)
    use_threads(recipe.run.threads, workers=workers, on_message=on_message)
    found.loaded.model.to(Ranks().device(recipe.run.device, on_message))
    return found
