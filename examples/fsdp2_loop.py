"""A plan with FSDP2, PyTorch's `fully_shard`: `torchrun --nproc-per-node 2 examples/fsdp2_loop.py`.

The plan adds the lines with `# +`; those with `# ++` are for several processes.
"""

import argparse

import torch
from clips import Clips, Net
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

import vcycle  # +

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=72, help="length of the training at the constant shape")
arguments = parser.parse_args()

distributed.init_process_group("gloo")
torch.manual_seed(0)
dataset, model = Clips(), Net()
baseline = vcycle.Baseline(batch=4, frames=8, size=16, clips=len(dataset), steps=arguments.steps, lr=0.1)  # +
plan = vcycle.cascade(baseline)  # +
model = vcycle.convert_batchnorm(model)  # +
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step, (clips, labels) in vcycle.steps(dataset, plan):  # +
    vcycle.apply(step, model, optimizer, clips)  # +
    sharing = vcycle.BatchPartition.of(step)  # ++
    with vcycle.one_step(model, sharing):  # ++
        loss = cross_entropy(model(clips), labels) * sharing.loss_weight  # ++
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if distributed.get_rank() == 0:
        print(f"step {step.index}: {step.batch} clips of {step.shape}, LR {step.lr:.3f}, loss {loss:.3f}")
distributed.destroy_process_group()
