"""What is trained and what trains it, put where it is to be trained."""

from collections.abc import Callable

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import nn

from vcycle.errors import VcycleError
from vcycle.nn import convert_batchnorm
from vcycle.plan import Plan
from vcycle.train.ema import Ema, EmaSpec
from vcycle.train.memory import grow_in_place, keep_freed
from vcycle.train.optimizer import OptimizerSpec
from vcycle.train.precision import precision_of
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.settings import Settings
from vcycle.train.shards import outline, shard
from vcycle.train.speed import Speed, let_cudnn_choose
from vcycle.train.state import TrainState
from vcycle.train.update import Task, Update

__all__ = ["make_fabric", "set_up"]


def make_fabric(settings: Settings, model: nn.Module | None = None, ranks: Ranks | None = None) -> Fabric:
    """One device, as Lightning Fabric drives it.

    Args:
        settings: Which device and precision.
        model: What is to be trained; one without 3-D convolutions needs none that can be trusted.
        ranks: The ranks that train together, each on a device of its own.

    Raises:
        VcycleError: if the device is not there, or its arithmetic cannot be trusted at this precision.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("run.device is cuda, and torch finds no CUDA device: cpu or auto")
    accelerator = "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"
    if accelerator == "cuda":
        grow_in_place()
        let_cudnn_choose()
    else:
        keep_freed()
    precision = precision_of(settings.precision, accelerator, model)
    local = 0 if ranks is None else ranks.local
    if accelerator == "cuda" and local >= torch.cuda.device_count():
        raise VcycleError(
            f"rank {local} of this machine has no GPU of its own: there are {torch.cuda.device_count()}; as many "
            "processes or fewer are accepted (torchrun --nproc-per-node)"
        )
    # Fabric is to see this one process, whatever started it: ranks are the update's matter.
    return Fabric(
        accelerator=accelerator,
        devices=[local] if accelerator == "cuda" else 1,
        plugins=[LightningEnvironment(), precision],
    )


def set_up(
    fabric: Fabric,
    *,
    plan: Plan,
    model: nn.Module,
    task: Task,
    optimizer: OptimizerSpec,
    run: RunFolder,
    settings: Settings,
    ranks: Ranks = ALONE,
    ema: EmaSpec | None = None,
    role_of: Callable[[str], str | None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> tuple[TrainState, Update]:
    """What is trained, as drawn, and what trains it; see `fit`."""
    convert_batchnorm(model, plan[0].bn_batch)
    model = _laid_out(model, fabric.device)
    average = None if ema is None else Ema(model, ema)
    models = [model] if average is None else [model, average.model]
    whole = None
    if settings.shard and ranks.world > 1:
        whole = outline(model)
        shard(*models, device=fabric.device, compress=settings.compress)
    else:
        for each in models:
            each.to(fabric.device)
    # A fused SGD whose first step is skipped, as fp16's mostly is, leaves its momentum undefined.
    # Of sharded parameters torch has no fused SGD, and on a CPU none of parameters that first learn at different steps.
    plain = optimizer.name == "sgd" and (whole is not None or fabric.device.type == "cpu")
    fused = settings.precision != "fp16" and not plain
    built = optimizer.build(model, role_of, fused=fused)
    state = TrainState(run=run, plan=plan, seed=settings.seed, model=model, optimizer=built, ema=average, outline=whole)
    speed = Speed(compile=settings.compile, graphs=settings.graphs, compress=settings.compress)
    update = Update(fabric, task, state, ranks, speed=speed, on_message=on_message)
    return state, update


def _laid_out(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with the weights of its convolutions as its clips lie in memory: channels last.

    2-D ones on a CPU only, where a step of super-resolution takes 0.6 of the time so.
    """
    if any(parameter.ndim == 5 for parameter in model.parameters()):
        return model.to(memory_format=torch.channels_last_3d)
    return model.to(memory_format=torch.channels_last) if device.type == "cpu" else model
