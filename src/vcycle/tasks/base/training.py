"""The training of a task: its network, weights and loss."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from vcycle.tasks.base.part import F, Part, R
from vcycle.tasks.base.splits import Splits

if TYPE_CHECKING:
    from torch import nn

    from vcycle.nn.weights.files import Weights
    from vcycle.tasks.models import ModelRegistry
    from vcycle.train.log import Watched
    from vcycle.train.objective import Objective

__all__ = ["TaskTraining"]


class TaskTraining(Part[R, F]):
    """The network of a task, its initial weights, and its loss."""

    models: "ClassVar[ModelRegistry | None]" = None
    """Its models by name, and what it asks of them; None for a task whose networks recipes do not choose."""
    brought: ClassVar[tuple[str, ...]] = ()
    """Recipe keys whose defaults are those of the initial weights' training, if known: a value per channel each."""

    @abstractmethod
    def build_model(self, recipe: R, classes: int, *, download: bool = True) -> "nn.Module":
        """Build the recipe's model, initialised with `run.seed`. Pretrained weights are fetched only if `download`."""

    @abstractmethod
    def objective(self, recipe: R, classes: int) -> "Objective":
        """The loss, and how a batch is fed to the model."""

    def training_objective(self, recipe: R, splits: Splits[F]) -> "Objective":
        """The objective of a training on this data; by default `objective`."""
        return self.objective(recipe, len(splits.classes))

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

        if recipe.init.path is None:
            return False
        load_matching(model, read_weights(Path(recipe.init.path)))
        on_message(f"init: weights from {recipe.init.path}")
        return True

    def load_weights(self, model: "nn.Module", weights: "Weights", recipe: R) -> None:
        """Load a trained model's weights, in place.

        Raises:
            CheckpointError: if they do not fit.
        """
        from vcycle.nn.weights.matching import load_matching

        load_matching(model, weights)

    def prepare_model(self, model: "nn.Module", recipe: R) -> "nn.Module":
        """Freeze the parts that the recipe does not train."""
        return model

    def precise_bn(self, recipe: R) -> int | None:
        """Number of clips for precise BN before validations; None to use the running statistics of training."""
        return None

    def role_of(self, recipe: R) -> Callable[[str], str | None]:
        """Maps a parameter's name to its role in the baseline, such as a part with its own LR."""
        return lambda _: None

    def monitor(self, model: "nn.Module") -> "Watched | None":
        """A value to watch after each step, beyond which training does not recover; None if there is none."""
        return None

    def flop_counts(self) -> Mapping[Any, Callable[..., int]]:
        """FLOP counts of operators that PyTorch's FLOP counter does not support."""
        return {}
