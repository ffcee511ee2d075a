"""Compiles or records every batch shape before the first step, outside of training time."""

from collections.abc import Callable

import torch

from vcycle.plan import BatchShape, rank_slice
from vcycle.train.memory import undone
from vcycle.train.micro_batching import attempted, shapes_from
from vcycle.train.objective import Objective, noise_batch
from vcycle.train.ranks import Ranks
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep

__all__ = ["make_ready"]


def make_ready(
    train_step: TrainStep,
    objective: Objective,
    state: TrainState,
    *,
    device: torch.device,
    ranks: Ranks,
    start: int,
    on_shape: Callable[[BatchShape], object] = lambda _: None,
) -> None:
    """Run a dummy step at every batch shape, from `start` on, that is not ready; the model stays as it is.

    Args:
        train_step: Computes the steps.
        objective: Makes the dummy batches.
        state: The training state.
        device: The training device.
        ranks: The ranks that train together, all of which call this.
        start: The first step.
        on_shape: Called with each shape before it is prepared.

    Raises:
        VcycleError: naming a shape that cannot be compiled.
    """
    cells = [cell for cell in shapes_from(state.plan, start) if not train_step.is_ready(cell)]
    if not cells:
        return
    state.model.train()
    with undone(state.model, state.optimizer, device, scaler=state.scaler):
        for cell in cells:
            on_shape(cell)
            own = len(rank_slice(cell.batch, cell.bn_batch, ranks.rank, ranks.world))
            train_step.attempt(attempted(state.plan[start], cell), noise_batch(objective, own, cell.shape))
