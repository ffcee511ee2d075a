"""A recipe with its data found: what `train`, `eval`, `compare` and `bench` start from, whichever the task."""

from collections.abc import Callable
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.config.recipe import RecipeBase
from vcycle.plan import Plan
from vcycle.tasks.base import Progress, Splits, Task, tasks
from vcycle.tasks.plans import check_names

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Experiment"]


class Experiment:
    """A recipe, its task and its data. Data are found once, datasets made once."""

    def __init__(
        self,
        recipe: RecipeBase,
        work: Path,
        *,
        on_progress: Progress = lambda *_: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take a recipe; nothing is looked for yet.

        Args:
            recipe: Of any task.
            work: Folder for embedded sets and caches.
            on_progress: Called with what is being done, how much of it is done, and how much there is.
            on_message: Called with what a user should know.
        """
        self.recipe = recipe
        self.task: Task[Any, Any] = tasks[recipe.task]
        self.work = work
        self.on_progress = on_progress
        self.on_message = on_message
        self._datasets: dict[str, Any] = {}

    def with_recipe(self, recipe: RecipeBase) -> "Experiment":
        """The same data under a recipe that differs in what does not change them, such as the seed."""
        other = copy(self)
        other.recipe = recipe
        return other

    @cached_property
    def splits(self) -> Splits[Any]:
        """The data, found but not decoded."""
        return self.task.find(self.recipe, self.work, self.on_progress)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, where the data has classes."""
        return self.splits.classes

    def plan(self, name: str | None = None) -> Plan:
        """The plan of that name, by default the recipe's, for the data, checked against the model.

        Raises:
            RecipeError: for an unknown name.
            PlanError: if it cannot be built, or the model cannot take its shapes.
        """
        check_names(self.task.plans, [name or self.recipe.plan])
        if (length := self.task.length(self.recipe)) is not None:
            self._planned(length, name)  # refused before data are looked for, or made
        return self._planned(len(self.splits.train), name)

    def _planned(self, samples: int, name: str | None) -> Plan:
        planned = self.task.plan(self.recipe, samples, name)
        self.task.check_plan(self.recipe, planned)
        return planned

    def check(self, *, fresh: bool) -> list[str]:
        """Check that the recipe can be trained on its data, and starts from weights that fit.

        Args:
            fresh: Whether the training starts, rather than resumes.

        Returns:
            What a user should know of the data.

        Raises:
            RecipeError: if it cannot.
            DataError: if the data is at fault.
            CheckpointError: if the weights that it starts from cannot be read, or do not fit.
        """
        notes = self.task.check(self.recipe, self.splits, fresh=fresh)
        if fresh and self.recipe.init.path is not None:
            import torch

            with torch.device("meta"):
                model = self.task.build_model(self.recipe, len(self.classes), download=False)
            self.task.init_weights(model, self.recipe, self.classes)
        return notes

    def dataset(self, split: str) -> Any:
        """The dataset of a split; frames are cached where the recipe says so.

        Raises:
            RecipeError: if there is no such split.
        """
        if split not in self._datasets:
            self._datasets[split] = self.task.dataset(self.recipe, self.splits, split, self.work, self.on_progress)
        return self._datasets[split]

    def build_model(self, *, initialise: bool, on_message: Callable[[str], None] = lambda _: None) -> "nn.Module":
        """The recipe's model, with what is frozen frozen.

        Args:
            initialise: Whether to load the weights that the recipe starts from; a resumed run has its own.
            on_message: Called with what was loaded.
        """
        download = initialise and self.recipe.init.path is None
        model = self.task.build_model(self.recipe, len(self.classes), download=download)
        if initialise:
            self.task.init_weights(model, self.recipe, self.classes, on_message)
        return self.task.prepare_model(model, self.recipe)
