"""The yardstick's training in each framework, written as its users write it.

Each setup trains from step `start` on, from the checkpoint of that step in `folder`. A training from the beginning
leaves a checkpoint there after every step. The same code runs under torchrun, on two processes.
"""

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import distributed
from yardstick import PLAN, Clips, Items, Trace, make_net, make_optimizer

import vcycle
from vcycle.utils.versions import older

WORLD = int(os.environ.get("WORLD_SIZE", 1))


def plain(folder=None, start=0):
    """The loop of the README; DistributedDataParallel around the model if there are several ranks."""
    trace = Trace()
    net = make_net(trace)
    optimizer = make_optimizer(net, trace)
    if start:
        saved = torch.load(folder / f"{start}.pt", weights_only=True)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
    model = torch.nn.parallel.DistributedDataParallel(net) if distributed.is_initialized() else net
    for step, (clips, indices) in vcycle.steps(Clips(), PLAN, start=start):
        vcycle.apply(step, model, optimizer, clips)
        sharing = vcycle.BatchPartition.of(step)
        with vcycle.one_step(model, sharing):
            (model(clips, indices)["loss"] * sharing.loss_weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        if folder is not None and not start:
            _save_once({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"{step.index + 1}.pt")
    trace.weights = net.state_dict()
    return trace


def fsdp(folder=None, start=0):
    """The loop with PyTorch's `fully_shard`; needs a process group."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    trace = Trace()
    model = make_net(trace)
    fully_shard(model)
    optimizer = make_optimizer(model, trace)
    if start:
        saved = torch.load(folder / f"{start}.pt", weights_only=True)
        set_state_dict(
            model, optimizer, model_state_dict=saved["net"], optim_state_dict=saved["optimizer"], options=whole
        )
        trace.lrs.clear()  # torch takes a step with an LR of 0, to make the state that it loads
    for step, (clips, indices) in vcycle.steps(Clips(), PLAN, start=start):
        vcycle.apply(step, model, optimizer, clips)
        sharing = vcycle.BatchPartition.of(step)
        with vcycle.one_step(model, sharing):
            (model(clips, indices)["loss"] * sharing.loss_weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        if folder is not None and not start:
            net, state = get_state_dict(model, optimizer, options=whole)
            _save_once({"net": net, "optimizer": state}, folder / f"{step.index + 1}.pt")
    trace.weights = {name: whole_tensor(tensor) for name, tensor in model.state_dict().items()}
    return trace


def whole_tensor(tensor):
    """A tensor that ranks share, whole on each."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _save_once(state, path):
    """Save on the first rank, and let the others wait for it."""
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        torch.save(state, path)
    if distributed.is_initialized():
        distributed.barrier()


def fabric(folder=None, start=0):
    """A loop of Lightning Fabric."""
    import lightning as L

    trace = Trace()
    fabric = L.Fabric(accelerator="cpu", devices=WORLD)
    fabric.launch()
    net = make_net(trace)
    model, optimizer = fabric.setup(net, make_optimizer(net, trace))
    state = {"net": model, "optimizer": optimizer}
    if start:
        fabric.load(folder / f"{start}.ckpt", state)
    for step, batch in vcycle.steps(Clips(), PLAN, start=start):
        clips, indices = fabric.to_device(batch)
        vcycle.apply(step, model, optimizer, clips)
        sharing = vcycle.BatchPartition.of(step)
        with vcycle.one_step(model, sharing):
            fabric.backward(model(clips, indices)["loss"] * sharing.loss_weight)
        optimizer.step()
        optimizer.zero_grad()
        if folder is not None and not start:
            fabric.save(folder / f"{step.index + 1}.ckpt", state)
    trace.weights = net.state_dict()
    return trace


def accelerate(folder=None, start=0):
    """A loop of Accelerate: model and optimizer are prepared, the loader is not."""
    from accelerate import Accelerator

    trace = Trace()
    accelerator = Accelerator(cpu=True)
    net = make_net(trace)
    model, optimizer = accelerator.prepare(net, make_optimizer(net, trace))
    if start:
        accelerator.load_state(folder / f"{start}")
    for step, (clips, indices) in vcycle.steps(Clips(), PLAN, start=start):
        vcycle.apply(step, model, optimizer, clips)
        sharing = vcycle.BatchPartition.of(step)
        with vcycle.one_step(model, sharing):
            accelerator.backward(model(clips, indices)["loss"] * sharing.loss_weight)
        optimizer.step()
        optimizer.zero_grad()
        if folder is not None and not start:
            accelerator.save_state(folder / f"{step.index + 1}")
    trace.weights = net.state_dict()
    return trace


def lightning(folder=None, start=0, **options):
    """A LightningModule under Lightning's Trainer."""
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    from vcycle.integrations.lightning import FollowPlan

    trace = Trace()
    module = lightning_module(trace)
    follow = FollowPlan(PLAN)
    saving = folder is not None and not start
    callbacks = [ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)] if saving else []
    options = {"max_epochs": 1, "callbacks": [*callbacks, follow], "enable_checkpointing": saving} | options
    trainer = L.Trainer(**(QUIET | options))
    trainer.fit(module, follow.loader(Clips()), ckpt_path=folder / f"step={start}.ckpt" if start else None)
    trace.weights = module.net.state_dict()
    return trace


QUIET = {
    "accelerator": "cpu",
    "devices": WORLD,
    "strategy": "ddp" if WORLD > 1 else "auto",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}
"""A Trainer of Lightning that only trains."""


def lightning_module(trace, convert=True):
    """The yardstick's network as a LightningModule."""
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_net(trace, convert)

        def training_step(self, batch, batch_idx):
            return self.net(*batch)["loss"]

        def configure_optimizers(self):
            return make_optimizer(self, trace)

    return Module()


def transformers(folder=None, start=0):
    """A model with the arguments of transformers' video classifiers, under its Trainer."""
    trace = Trace()
    trainer = plan_trainer(trace, folder, save_strategy="no" if folder is None or start else "steps")
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{start}") if start else None)
    trace.weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    return trace


def plan_trainer(trace, folder, convert=True, optimizers=None, **arguments):
    """A PlanTrainer of the yardstick's training."""
    from transformers import TrainingArguments

    from vcycle.integrations.transformers import PlanTrainer

    class OwnLoss(PlanTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, **_):
            outputs = model(**inputs)
            return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_net(trace, convert)

        def forward(self, pixel_values, labels):  # (B, T, C, H, W)
            return self.net(pixel_values.transpose(1, 2), labels)

    model = Model()
    quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_steps": 1}
    needed = {"data_seed": 0, "max_grad_norm": 0.0}
    return OwnLoss(
        model,
        TrainingArguments(str(folder), **(quiet | needed | arguments)),
        train_dataset=Items(),
        optimizers=optimizers or (make_optimizer(model, trace), None),
        plan=PLAN,
    )


def _accelerate_prepares_the_loader(**dataloader):
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    sampler = vcycle.data.PlanBatchSampler(PLAN, len(Clips()))
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**dataloader))
    accelerator.prepare(torch.utils.data.DataLoader(Clips(), batch_sampler=sampler))


REFUSED_ON_TWO = {
    "accelerate": [
        partial(_accelerate_prepares_the_loader, **options)
        for options in ({}, {"dispatch_batches": True}, {"dispatch_batches": True, "split_batches": True})
    ]
}
"""What would go wrong on several ranks alone, by setup."""


class Row(NamedTuple):
    """A setup in the table of docs/integrations.md."""

    title: str
    train: Callable[..., Trace]
    example: str
    library: str | None = None
    """What must be installed."""
    alone: bool = True
    """Whether it trains in one process too."""
    torch: str = "2.6"
    """The oldest PyTorch with which it works."""


def missing(name):
    """What a setup lacks here, if anything."""
    row = SETUPS[name]
    if row.library is not None and importlib.util.find_spec(row.library) is None:
        return f"{row.library} is not installed: pip install 'vcycle[examples]'"
    found = older("torch", row.torch)
    return None if found is None else f"torch is {found}, older than {row.torch}"


SETUPS = {
    "plain": Row("your own loop, DistributedDataParallel", plain, "plain.py"),
    "fsdp": Row("your own loop, FSDP2", fsdp, "fsdp2_loop.py", alone=False, torch="2.10"),
    "fabric": Row("Lightning Fabric", fabric, "fabric_loop.py", "lightning"),
    "lightning": Row("Lightning Trainer", lightning, "lightning_trainer.py", "lightning"),
    "accelerate": Row("Accelerate", accelerate, "accelerate_loop.py", "accelerate"),
    "transformers": Row("transformers Trainer", transformers, "hf_trainer.py", "transformers"),
}
