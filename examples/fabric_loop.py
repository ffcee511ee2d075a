"""A plan in a loop of Lightning Fabric, on any number of devices: `fabric run examples/fabric_loop.py --devices 2`.

The plan adds the lines with `# +`; those with `# ++` are for several processes.
"""

import argparse

import lightning as L
import torch
from clips import Clips, Net
from torch.nn.functional import cross_entropy

import vcycle  # +

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
arguments = parser.parse_args()

fabric = L.Fabric(accelerator="cpu")
fabric.launch()
torch.manual_seed(0)
dataset, model = Clips(), Net()
baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=0.1)  # +
plan = vcycle.cascade(baseline)  # +
model = vcycle.convert_batchnorm(model)  # +
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

for step, batch in vcycle.steps(dataset, plan):  # +
    clips, labels = fabric.to_device(batch)
    vcycle.apply(step, model, optimizer, clips)  # +
    sharing = vcycle.BatchPartition.of(step)  # ++
    with vcycle.one_step(model, sharing):  # ++
        loss = cross_entropy(model(clips), labels) * sharing.loss_weight  # ++
        fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    fabric.print(f"step {step.index}: {step.batch} clips of {step.shape}, LR {step.lr:.3f}, loss {loss:.3f}")
