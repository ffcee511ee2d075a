"""What is trained and what trains it, put where it is to be trained."""

from collections.abc import Callable

import torch
from torch import nn

from vcycle.nn import convert_batchnorm
from vcycle.plan import Plan
from vcycle.train.accelerator import Accelerator
from vcycle.train.config import TrainConfig
from vcycle.train.ema import Ema
from vcycle.train.objective import Objective
from vcycle.train.optimizer import build_optimizer
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.shards import meta_copy, shard
from vcycle.train.speed import Speed
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep

__all__ = ["set_up"]


def set_up(
    config: TrainConfig,
    accelerator: Accelerator,
    *,
    plan: Plan,
    model: nn.Module,
    objective: Objective,
    run: RunFolder,
    ranks: Ranks = ALONE,
    role_of: Callable[[str], str | None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> tuple[TrainState, TrainStep]:
    """Put a model on its device, and make its optimizer and its training step; see `vcycle.train.trainer.fit`."""
    options, device = config.run, accelerator.device
    convert_batchnorm(model, plan[0].bn_batch)
    model = _laid_out(model, device)
    average = None if config.ema is None else Ema(model, config.ema)
    models = [model] if average is None else [model, average.model]
    empty = None
    if options.shard and ranks.world > 1:
        empty = meta_copy(model)
        shard(*models, device=device, compress=options.compress)
    else:
        for each in models:
            each.to(device)
    # A fused SGD whose first step is skipped, as fp16's mostly is, leaves its momentum undefined.
    # Of sharded parameters torch has no fused SGD, and on a CPU none of parameters that first learn at different steps.
    plain = config.optimizer.name == "sgd" and (empty is not None or device.type == "cpu")
    fused = options.precision != "fp16" and not plain
    optimizer = build_optimizer(config.optimizer, model, role_of, fused=fused)
    state = TrainState(
        run=run, plan=plan, seed=options.seed, model=model, optimizer=optimizer, ema=average, meta_copy=empty
    )
    train_step = TrainStep(
        accelerator,
        objective,
        state,
        ranks,
        clip_grad_norm=config.clip_grad_norm,
        speed=Speed(compile=options.compile, graphs=options.graphs, compress=options.compress),
        on_message=on_message,
    )
    return state, train_step


def _laid_out(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with the weights of its convolutions as its clips lie in memory: channels last.

    2-D ones on a CPU only, where a step of super-resolution takes 0.6 of the time so.
    """
    if any(parameter.ndim == 5 for parameter in model.parameters()):
        return model.to(memory_format=torch.channels_last_3d)
    return model.to(memory_format=torch.channels_last) if device.type == "cpu" else model
