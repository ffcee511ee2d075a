"""A plan under Lightning's Trainer. The plan adds the lines with `# +`, on any number of devices."""

import argparse

import lightning as L
import torch
from clips import Clips, Net
from torch.nn.functional import cross_entropy

import vcycle  # +
from vcycle.integrations.lightning import FollowPlan  # +

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
arguments = parser.parse_args()


class Module(L.LightningModule):
    """Lightning's usual module."""

    def __init__(self):
        """The network."""
        super().__init__()
        self.net = vcycle.convert_batchnorm(Net())  # +

    def training_step(self, batch, batch_idx):
        """The mean loss of a batch."""
        clips, labels = batch
        loss = cross_entropy(self.net(clips), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        """The optimizer alone: the plan is the LR schedule."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


L.seed_everything(0, verbose=False)
dataset = Clips()
baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=0.1)  # +
follow = FollowPlan(vcycle.cascade(baseline))  # +
trainer = L.Trainer(max_epochs=1, callbacks=[follow], accelerator="cpu", logger=False)  # +
trainer.fit(Module(), follow.loader(dataset))  # +
print(f"{trainer.global_step} steps, loss {trainer.callback_metrics['loss']:.3f}")
