"""Counts the FLOPs of a step on the meta device."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from vcycle.bench.steps.workload import Workload
from vcycle.nn import drop_tokens
from vcycle.plan import BatchShape
from vcycle.train.calling import calling

__all__ = ["step_flops"]


def step_flops(workload: Workload, shape: BatchShape) -> int:
    """FLOPs of one step, forward and backward: 2 per multiply-add of a convolution or matrix multiplication.

    Dropped tokens do not count: a transformer's linear layers have FLOPs for each token that is kept, its attention for
    each pair of them. As usual, norms, activations, flow warping, loss and optimizer are not counted. Nothing is
    allocated.

    Args:
        workload: The model and its training.
        shape: The batch shape.
    """
    device = torch.device("meta")
    with device:
        model = workload.build().train()
    if shape.tokens < 1:
        drop_tokens(model, shape.tokens, first=0)
    clips, _ = workload.objective.noise(shape.batch, shape.shape, device)
    counter = FlopCounterMode(display=False, custom_mapping=dict(workload.flop_counts))
    with calling(model, f"on {shape}, counted on the meta device"), counter, device:
        torch.autograd.backward(workload.objective.predict(model, clips).sum())
    return int(counter.get_total_flops())
