"""What adapters share."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcycle import Plan, PlanError
from vcycle.data import PlanLoader
from vcycle.nn import SubBatchNorm, require_token_dropping

__all__ = ["BatchesFromStep", "require_plan", "require_prepared"]


class BatchesFromStep:
    """The batches of a plan from a trainer's step on, which is asked for with the first batch.

    Trainers call ``iter`` before they restore a checkpoint, and count the batches before it too: the length is that of
    the whole plan. It is no ``DataLoader``, so no trainer shards it again.
    """

    def __init__(self, batches: PlanLoader, step: Callable[[], int]) -> None:
        """Wrap a loader.

        Args:
            batches: The loader of the whole plan.
            step: Returns the index of the step that the trainer is at.
        """
        self._batches = batches
        self._step = step

    def __len__(self) -> int:
        """Return the number of steps of the plan."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches."""
        self._batches.load_state_dict({**self._batches.state_dict(), "step": self._step()})
        yield from self._batches

    def state_dict(self) -> dict[str, Any]:
        """The loader's state. A trainer that saves it takes the loader for one that resumes exactly, as it is."""
        return self._batches.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Check that a state is of these batches; their position is the trainer's step.

        Raises:
            CheckpointError: if it is of another plan, seed or length of the dataset.
        """
        self._batches.load_state_dict(state_dict)


def require_plan(plan: object, call: str) -> None:
    """Check that a plan is one.

    Args:
        plan: The argument.
        call: How the adapter is made, for the message.

    Raises:
        PlanError: if it is not.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"plan is {type(plan).__name__}, not a vcycle.Plan: the call is {call}")


def require_prepared(model: nn.Module, plan: Plan, *, all_train: bool = False) -> None:
    """Check that a model drops tokens if the plan does, and no BatchNorm in training mode takes its whole batches.

    Args:
        model: The model.
        plan: The plan.
        all_train: Whether the trainer puts the whole model in training mode, whatever its modes are now.

    Raises:
        PlanError: if it is not so; names the layer.
    """
    require_token_dropping(model, plan)
    if all(cell.batch <= cell.bn_batch for cell in plan.shapes):
        return
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or all_train) and not isinstance(layer, SubBatchNorm):
            raise PlanError(
                f"layer {name or 'model'!r} is a {type(layer).__name__} without groups: it would normalise over whole "
                "batches of the plan, or over a rank's part of them. Call vcycle.convert_batchnorm(model) before the "
                "training, and leave out sync_batchnorm=True, which undoes it: ranks share groups where the plan "
                "requires it"
            )
