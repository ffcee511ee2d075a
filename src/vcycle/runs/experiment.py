"""Defines `Experiment`: a recipe with its task and data, used by `train`, `eval`, `compare` and `bench`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.config.recipe import RecipeBase
from vcycle.errors import RecipeError
from vcycle.plan import Plan
from vcycle.tasks.base import Evaluator, Progress, Scope, Splits, Task, tasks
from vcycle.tasks.memory import check_memory
from vcycle.tasks.plans import check_names
from vcycle.train.loggers import check_loggers

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Experiment"]


class Experiment:
    """A recipe, its task and its data. Data is found once; each dataset is built once."""

    def __init__(
        self,
        recipe: RecipeBase,
        work: Path,
        *,
        on_progress: Progress = lambda *_: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create an experiment; the data is not read yet.

        Args:
            recipe: A recipe of any task.
            work: Folder for embedded datasets and caches.
            on_progress: Called with the name of the operation, the number of items done, and the total.
            on_message: Called with notes for the user.
        """
        self.recipe = recipe
        self.task: Task[Any, Any] = tasks[recipe.task]
        self.work = work
        self.on_progress = on_progress
        self.on_message = on_message
        self._datasets: dict[str, Any] = {}
        self._evaluators: dict[tuple[str, Scope], Evaluator] = {}

    def with_recipe(self, recipe: RecipeBase) -> "Experiment":
        """The same data with another recipe, which may differ only in keys that do not affect it, such as the seed."""
        other = copy(self)
        other.recipe = recipe
        return other

    @cached_property
    def splits(self) -> Splits[Any]:
        """The data, found but not decoded."""
        return self.task.find(self.recipe, self.work, self.on_progress)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; empty if the data has no classes."""
        return self.splits.classes

    def plan(self, name: str | None = None) -> Plan:
        """Build the plan of that name, by default the recipe's, for the data, and check it against the model.

        Raises:
            RecipeError: for an unknown name, or an option that the installed PyTorch does not have.
            PlanError: if it cannot be built, or the model does not support its shapes.
        """
        check_names(self.task.plans, [name or self.recipe.plan])
        self.recipe.run.check_torch()
        if (length := self.task.length(self.recipe)) is not None:
            self._planned(length, name)  # errors show before the data is searched or generated
        return self._planned(len(self.splits.train), name)

    def _planned(self, samples: int, name: str | None) -> Plan:
        planned = self.task.plan(self.recipe, samples, name)
        self.task.check_plan(self.recipe, planned)
        return planned

    def leave_out(self, known: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Leave out training items that cannot be opened. Call it before planning.

        Args:
            known: The items that were left out when the run started; if None, they are searched.

        Returns:
            The items left out, with the reasons.

        Raises:
            DataError: if there are more of them than `run.bad_limit` allows.
        """
        dead = self.task.unopenable(self.recipe, self.splits, self.on_progress) if known is None else known
        self.splits.without(dead)
        return dead

    def check_init(self) -> None:
        """Check that the recipe's initial weights fit its model, on the meta device.

        Raises:
            CheckpointError: if they cannot be read, or do not fit.
        """
        if self.recipe.init.path is not None:
            self.task.init_weights(self._meta_model(), self.recipe, self.classes)

    def check(self, plan: Plan, *, fresh: bool, world: int = 1) -> list[str]:
        """Check that the recipe can be trained on its data on this machine, and that its initial weights fit.

        Args:
            plan: The plan to train.
            fresh: Whether the training starts from step 0, instead of resuming.
            world: Number of processes that share a step.

        Returns:
            Notes about the data for the user.

        Raises:
            RecipeError: if the recipe is wrong, needs too much memory, or a logger or optimizer that is not installed.
            DataError: if the data is wrong.
            CheckpointError: if the initial weights cannot be read, or do not fit.
        """
        from vcycle.train.optimizer import check_optimizer

        check_loggers(self.recipe.run.loggers)
        check_optimizer(self.recipe.optimizer)
        notes = self.task.check(self.recipe, self.splits, fresh=fresh)
        if fresh:
            model = self._meta_model()
            check_memory(model, plan, world=world, scale=self.task.scale)
            self.task.init_weights(model, self.recipe, self.classes)
        return notes

    def _meta_model(self) -> "nn.Module":
        """The model on the meta device, or on the CPU if it reads values while it is built, such as drop-path rates."""
        import torch

        with suppress(RecipeError), torch.device("meta"):
            return self.task.build_model(self.recipe, len(self.classes), download=False)
        return self.task.build_model(self.recipe, len(self.classes), download=False)

    def dataset(self, split: str) -> Any:
        """The dataset of a split; frames are cached if the recipe sets a cache.

        Raises:
            RecipeError: if the split does not exist.
        """
        if split not in self._datasets:
            self._datasets[split] = self.task.dataset(self.recipe, self.splits, split, self.work, self.on_progress)
        return self._datasets[split]

    def evaluator(self, split: str, scope: Scope) -> Evaluator:
        """The evaluator of a split."""
        if (split, scope) not in self._evaluators:
            made = self.task.evaluator(self.recipe, self.dataset(split), self.classes, scope=scope)
            self._evaluators[split, scope] = made
        return self._evaluators[split, scope]

    def build_model(self, *, initialise: bool, on_message: Callable[[str], None] = lambda _: None) -> "nn.Module":
        """Build the recipe's model and freeze its frozen parts.

        Args:
            initialise: Whether to load the recipe's initial weights; a resumed run loads its checkpoint instead.
            on_message: Called with a summary of the weights that were loaded.
        """
        download = initialise and self.recipe.init.path is None
        model = self.task.build_model(self.recipe, len(self.classes), download=download)
        if initialise:
            self.task.init_weights(model, self.recipe, self.classes, on_message)
        return self.task.prepare_model(model, self.recipe)
