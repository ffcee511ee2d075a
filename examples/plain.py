"""A plan in a plain PyTorch loop. On two processes: `torchrun --nproc-per-node 2 examples/plain.py`.

The plan adds the lines with `# +`; those with `# ++` are for several processes.
"""

import argparse
import os

import torch
from clips import Clips, Net
from torch import distributed
from torch.nn.functional import cross_entropy

import vcycle  # +

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
arguments = parser.parse_args()

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
dataset, model = Clips(), Net()
baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=0.1)  # +
plan = vcycle.cascade(baseline)  # +
model = vcycle.convert_batchnorm(model)  # +
if world > 1:
    distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step, (clips, labels) in vcycle.steps(dataset, plan):  # +
    vcycle.apply(step, model, optimizer, clips)  # +
    sharing = vcycle.BatchPartition.of(step)  # ++
    with vcycle.one_step(model, sharing):  # ++
        loss = cross_entropy(model(clips), labels) * sharing.loss_weight  # ++
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step.index}: {step.batch} clips of {step.shape}, LR {step.lr:.3f}, loss {loss:.3f}")
if world > 1:
    distributed.destroy_process_group()
