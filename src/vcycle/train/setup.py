"""Sets up training: moves the model to its device, and builds optimizer, EMA and training step."""

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
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
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
    ranks: Ranks = SINGLE_PROCESS,
    role_of: Callable[[str], str | None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> tuple[TrainState, TrainStep]:
    """Put a model on its device, and make its optimizer and its training step; see `vcycle.train.trainer.fit`."""
    options, device = config.run, accelerator.device
    options.check_torch()
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
    # In a fused SGD, momentum is undefined if the first step is skipped, as it usually is in fp16.
    # torch has no fused SGD for sharded parameters, nor on a CPU for parameters whose first steps differ.
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
    """Convert the model to channels last, the memory format of its clips.

    Models without 3-D convolutions only on a CPU, where it makes a super-resolution step 1.7× faster.
    """
    if any(parameter.ndim == 5 for parameter in model.parameters()):
        return model.to(memory_format=torch.channels_last_3d)
    return model.to(memory_format=torch.channels_last) if device.type == "cpu" else model
