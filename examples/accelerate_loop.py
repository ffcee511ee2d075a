"""A plan in a loop of Accelerate: `accelerate launch examples/accelerate_loop.py`.

The plan adds the lines with `# +`; those with `# ++` are for several processes. Model and optimizer are prepared. The
batches are not: they are each rank's own already, so the loop moves them to the device.
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from clips import Clips, Net
from torch.nn.functional import cross_entropy

import vcycle  # +

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
arguments = parser.parse_args()

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
dataset, model = Clips(), Net()
baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=0.1)  # +
plan = vcycle.cascade(baseline)  # +
model = vcycle.convert_batchnorm(model)  # +
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

for step, batch in vcycle.steps(dataset, plan):  # +
    clips, labels = send_to_device(batch, accelerator.device)
    vcycle.apply(step, model, optimizer, clips)  # +
    sharing = vcycle.BatchPartition.of(step)  # ++
    with vcycle.one_step(model, sharing):  # ++
        loss = cross_entropy(model(clips), labels) * sharing.loss_weight  # ++
        accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(f"step {step.index}: {step.batch} clips of {step.shape}, LR {step.lr:.3f}, loss {loss:.3f}")
