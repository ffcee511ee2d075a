"""What each framework must reproduce: a short plan, clips that carry their index, a network that notes its inputs.

The plain loop trains it once; every other setup must see the same shapes, clips and LRs and end with the same weights.
"""

from dataclasses import dataclass, field
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

import vcycle

CLIPS, CLASSES = 48, 4

PLAN = vcycle.cascade(
    vcycle.Baseline(
        batch=4,
        frames=8,
        size=16,
        clips=CLIPS,
        epochs=6,
        lr=0.1,
        warmup=vcycle.RampWarmup(length=0.5, start_lr=0.01),
        decay=vcycle.CosineDecay(),
    )
)
"""19 steps: batches of 32, 16, 8 and 4 clips, of 4×8², 8×8², 8×11² and 8×16²."""

RESUMED_AT = 7
"""The step at which two processes resume: between two shapes' first and last steps."""


@cache
def clip(index):
    """A clip `(C, T, H, W)`, made from its index."""
    return torch.rand(2, 10, 20, 20, generator=torch.Generator().manual_seed(index))


class Clips(torch.utils.data.Dataset):
    """Pairs of a clip and its index, which stands in for the label: the loss takes its class from it."""

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        return clip(index), index


class Items(Clips):
    """The same as items of transformers: dicts with frames first."""

    def __getitem__(self, index):
        return {"pixel_values": clip(index).transpose(0, 1), "labels": index}


@dataclass
class Trace:
    """What a training did, step by step."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of the batches, `(B, C, T, H, W)`."""
    clips: list[list[int]] = field(default_factory=list)
    """The indices of each batch's clips."""
    lrs: list[float] = field(default_factory=list)
    """The LR that each update used."""
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """State dict at the end."""


class Net(nn.Module):
    """A small video classifier that computes its own loss and notes what it trains on."""

    def __init__(self, trace):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv3d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm3d(6)
        self.head = nn.Linear(6, CLASSES)
        self.trace = trace

    def forward(self, clips, indices):
        if self.training:
            self.trace.shapes.append(tuple(clips.shape))
            self.trace.clips.append(indices.tolist())
        logits = self.head(F.relu(self.norm(self.conv(clips))).mean((2, 3, 4)))
        return {"loss": F.cross_entropy(logits, indices % CLASSES), "logits": logits}


def make_net(trace, convert=True):
    """The network, by default with BatchNorm in groups."""
    return vcycle.convert_batchnorm(Net(trace)) if convert else Net(trace)


def make_optimizer(net, trace):
    """SGD that notes the LR of each update."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-3)
    optimizer.register_step_pre_hook(lambda made, *_: trace.lrs.append(float(made.param_groups[0]["lr"])))
    return optimizer


def difference(one, other):
    """The largest difference between the weights of two trainings."""
    first, second = ({key.removeprefix("net."): value for key, value in run.weights.items()} for run in (one, other))
    assert first.keys() == second.keys()
    return max(float((first[key].double() - second[key].double()).abs().max()) for key in first)
