"""A narrow network whose batches do not always fit, and what trains it."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vcycle.data import Batch
from vcycle.nn import convert_batchnorm
from vcycle.plan import Baseline, cascade, rank_slice
from vcycle.train.accelerator import make_accelerator
from vcycle.train.config import OptimizerSection, RunSection
from vcycle.train.micro_batching import MicroBatchSearch
from vcycle.train.optimizer import build_optimizer
from vcycle.train.ranks import SINGLE_PROCESS
from vcycle.train.run import RunFolder
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep

CPU = torch.device("cpu")
BASELINE = Baseline(batch=4, frames=4, size=8, clips=24, steps=24, lr=0.05, bn_batch=4)
PLAN = cascade(BASELINE)


class Net(nn.Module):
    """A narrow network with all that a step may change, in double precision."""

    def __init__(self, *, limit=math.inf, norm=True):
        super().__init__()
        self.limit, self.seen = limit, []
        self.body = nn.Sequential(
            nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4) if norm else nn.Identity(), nn.ReLU()
        )
        self.head = nn.Linear(4, 4)
        self.double()

    def forward(self, clips):
        self.seen.append(len(clips))
        if len(clips) > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(clips)} MiB.")
        return self.head(self.body(clips.double()).mean((2, 3, 4)))


class Noisy:
    """Cross-entropy, and clips of noise to try with."""

    mixes = False

    def __init__(self):
        self.tried = []

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(clips.div(255).permute(0, 4, 1, 2, 3)), labels)

    def noise(self, batch, shape, device):
        self.tried.append((batch, shape))
        return torch.randint(0, 256, (batch, *shape, 3), dtype=torch.uint8), torch.randint(0, 4, (batch,))

    def check(self, labels):
        pass

    def predict(self, model, clips):
        return model(clips)


class Trained:
    """A model, what trains it, and what makes its steps fit."""

    def __init__(self, folder, *, model=Net, plan=PLAN, optimizer=None, ranks=SINGLE_PROCESS, resumed=False):
        torch.manual_seed(0)
        folder.mkdir(exist_ok=True)
        self.model = convert_batchnorm(model(), plan[0].bn_batch).train()
        self.task, self.told, self.logged = Noisy(), [], []
        self.state = TrainState(
            run=RunFolder(folder),
            plan=plan,
            seed=0,
            model=self.model,
            optimizer=build_optimizer(optimizer or OptimizerSection(), self.model),
        )
        self.train_step = TrainStep(make_accelerator(RunSection(device="cpu")), self.task, self.state, ranks)
        self.gradients = []
        self.state.optimizer.register_step_pre_hook(
            lambda *_: self.gradients.append([each.grad.clone() for each in self.model.parameters()])
        )
        self.search = MicroBatchSearch(
            self.train_step,
            self.task,
            self.state,
            device=CPU,
            ranks=ranks,
            resumed=resumed,
            on_message=self.told.append,
            on_shortage=lambda step, message: self.logged.append((step.index, message)),
        )

    def everything(self):
        """All that a step changes, as bytes."""
        state = [self.model.state_dict(), self.state.optimizer.state_dict(), torch.get_rng_state()]
        return str(_plain(state)), [each.grad for each in self.model.parameters()]

    def steps(self, count=None):
        for step in list(self.state.plan)[:count]:
            self.search(step, batch_of(step))


def _plain(value):
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def batch_of(step, rank=0, world=1):
    drawn = torch.Generator().manual_seed(step.index)
    clips = torch.randint(0, 256, (step.batch, *step.shape, 3), dtype=torch.uint8, generator=drawn)
    labels = torch.randint(0, 4, (step.batch,), generator=drawn)
    own = rank_slice(step.batch, step.bn_batch, rank, world)
    places = torch.arange(own.start, own.stop)
    return Batch(clips[places], labels[places], places, places, [], [])


def largest_difference(one, other):
    return max(
        (mine.double() - theirs.double()).abs().max().item()
        for mine, theirs in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


class Hungry(Net):
    """Takes 8 MiB for each clip, really, and keeps them until the next forward."""

    held = None

    def forward(self, clips):
        self.held = None
        self.held = torch.empty(len(clips) << 23, dtype=torch.uint8)
        return super().forward(clips)


class Short(Net):
    """Runs out of memory in its first forward of more than so many clips, and not again."""

    def __init__(self, *, above):
        super().__init__()
        self.above = above

    def forward(self, clips):
        out = super().forward(clips)
        if len(clips) > self.above:
            self.above = math.inf
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return out


@pytest.fixture(scope="session", name="net")
def _net() -> Any:
    """The network."""
    return Net


@pytest.fixture(scope="session", name="hungry_net")
def _hungry_net() -> Any:
    """The network that takes memory."""
    return Hungry


@pytest.fixture(scope="session", name="short_net")
def _short_net() -> Any:
    """The network that runs out of memory once."""
    return Short


@pytest.fixture(scope="session", name="noisy")
def _noisy() -> Any:
    """What it is to learn."""
    return Noisy


@pytest.fixture(scope="session", name="trainer")
def _trainer() -> Any:
    """A network with what trains it."""
    return Trained


@pytest.fixture(scope="session", name="batch_of")
def _batch_of() -> Any:
    """Makes the batch of a step."""
    return batch_of


@pytest.fixture(scope="session", name="largest_difference")
def _largest_difference() -> Any:
    """How far two models are apart."""
    return largest_difference
