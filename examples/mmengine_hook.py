"""A plan in MMEngine's Runner, which trains the models of MMAction2 1.x and its siblings.

The Runner's configuration keeps model, dataset and optimizer. The hook replaces the batches and the LR, so there is no
`param_scheduler`, and the length is the plan's. The lines with `# +` are what the plan adds.

    python examples/mmengine_hook.py --steps 24
"""

import argparse
import os
from contextlib import ExitStack
from itertools import chain, repeat

import torch
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn
from torch.nn.functional import cross_entropy

import vcycle  # +


@HOOKS.register_module()
class FollowPlan(Hook):
    """Gives each iteration of an `IterBasedTrainLoop` the batch, LR and BatchNorm groups of its step.

    Args:
        plan: The plan, the whole training.
        loading: Arguments of `vcycle.loader`, such as `key`, the key of the clip in the dataset's items.
    """

    priority = "HIGHEST"  # before the hook that records the LR

    def __init__(self, plan, **loading):
        """Follow a plan."""
        self.plan, self.loading = plan, loading
        self.step, self.weight = ExitStack(), 1.0

    def before_train(self, runner):
        """Check the configuration, and load the plan's batches from the Runner's iteration on."""
        if runner.max_iters != len(self.plan):
            raise vcycle.PlanError(f"train_cfg.max_iters is {runner.max_iters}; accepted: {len(self.plan)}, len(plan)")
        if runner.param_schedulers:
            raise vcycle.PlanError("param_scheduler is set, but the plan is the LR schedule; accepted: None")
        if getattr(runner.optim_wrapper, "_accumulative_counts", 1) != 1:
            raise vcycle.PlanError("optim_wrapper.accumulative_counts: a plan's batches are whole; accepted: 1")
        source = runner.train_dataloader  # its dataset is used, and its number of workers
        options = {"workers": source.num_workers, **self.loading}
        batches = vcycle.loader(source.dataset, self.plan, start=runner.iter, **options)
        # On a resume, the Runner drops as many batches as it has trained on.
        runner.train_loop.dataloader_iterator = chain(repeat(None, runner.iter), batches)
        runner.model.register_forward_hook(self._weighted)

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        """Apply the step to model and optimizer, if the batch is that step's."""
        step, clips = self.plan[runner.iter], self._clips(data_batch)
        vcycle.apply(step, runner.model, runner.optim_wrapper.optimizer, clips)
        self.step.enter_context(vcycle.one_step(runner.model, vcycle.BatchPartition.of(step)))
        self.weight = runner.world_size * len(clips) / step.batch

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        """Commit the step's BatchNorm statistics."""
        self.step.close()

    def before_save_checkpoint(self, runner, checkpoint):
        """Store the identity of the plan."""
        checkpoint["vcycle_plan"] = self.plan.fingerprint

    def after_load_checkpoint(self, runner, checkpoint):
        """Refuse to resume the training of another plan."""
        found = checkpoint.get("vcycle_plan", self.plan.fingerprint)
        if found != self.plan.fingerprint:
            raise vcycle.CheckpointError(f"the checkpoint is of plan {found}, not of {self.plan.fingerprint}")

    def _clips(self, batch):
        key = self.loading.get("key")
        return batch[0] if key is None else batch[key]

    def _weighted(self, module, arguments, losses):
        """Weight the losses by this rank's share of the batch: ranks may have slices of different lengths."""
        if not module.training or self.weight == 1:
            return losses
        return {name: value * self.weight if "loss" in name else value for name, value in losses.items()}


class Clips(torch.utils.data.Dataset):
    """Clips of noise whose brightness is their class, as MMEngine's datasets give them: dictionaries."""

    def __len__(self):
        """The number of clips."""
        return 24

    def __getitem__(self, index):
        """A clip of 8 frames of 16×16 pixels, and its class."""
        noise = torch.rand(3, 8, 16, 16, generator=torch.Generator().manual_seed(index))
        return {"inputs": noise + index % 2, "labels": index % 2}


class Classifier(BaseModel):
    """A small network as MMEngine calls it: it returns its losses in training."""

    def __init__(self):
        """A network of one convolution."""
        super().__init__()
        layers = nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
        self.net = nn.Sequential(*layers, nn.Linear(8, 2))

    def forward(self, inputs, labels=None, mode="tensor"):
        """The losses with `mode="loss"`, otherwise the logits."""
        logits = self.net(inputs)
        return {"loss": cross_entropy(logits, labels)} if mode == "loss" else logits


def runner(plan, folder, **changes):
    """A Runner that trains by the plan; `changes` are further arguments, such as `resume=True`."""
    torch.manual_seed(0)
    arguments = {
        "model": vcycle.convert_batchnorm(Classifier()),  # +
        "work_dir": str(folder),
        "train_dataloader": {"dataset": Clips(), "sampler": {"type": "DefaultSampler"}, "batch_size": 1},
        "train_cfg": {"type": "IterBasedTrainLoop", "max_iters": len(plan)},  # +
        "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}},
        "custom_hooks": [FollowPlan(plan, key="inputs")],  # +
        "default_hooks": {"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 1}},
        "launcher": "pytorch" if "RANK" in os.environ else "none",  # under torchrun
        **changes,
    }
    return Runner(**arguments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24, help="length of the training at the constant shape")
    parser.add_argument("--folder", default="work", help="the Runner's work_dir")
    given = parser.parse_args()
    baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(Clips()), steps=given.steps, lr=0.1)  # +
    runner(vcycle.cascade(baseline), given.folder).train()  # +
