"""Ranks that hold parts of a model evaluate different numbers of clips, and no rank holds all of it at once."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from vcycle.train import shards
from vcycle.train.ranks import Ranks
from vcycle.train.shards import shard
from vcycle.train.uneven_inputs import uneven_inputs

CPU = torch.device("cpu")


class Stage(nn.Sequential):
    """Blocks, which are units within a unit, used as often as a clip has frames."""

    def __init__(self):
        super().__init__()
        self.mix, self.blocks = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))

    def forward(self, x, frames):
        for _ in range(frames):
            x = self.blocks(self.mix(x)).tanh()
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages, self.head = nn.ModuleList([Stage(), Stage(), Stage()]), nn.Linear(6, 6)

    def forward(self, clip):
        x = clip.mean(0, keepdim=True)
        for stage in self.stages:
            x = stage(x, len(clip))
        return self.head(x)


def _net():
    torch.manual_seed(0)
    return Net()


def _clips(*lengths):
    return [torch.linspace(-1, 1, 6 * length).reshape(length, 6) for length in lengths]


LENGTHS = ((), (2,), (1, 3, 5))
"""Frames of each rank's clips: one has none, and the others differ in number and in length."""


def _evaluated(ranks, model, *, precision=None):
    """The outputs of all ranks, from every rank's own clips."""
    with uneven_inputs(model, ranks), torch.inference_mode(), torch.autocast("cpu", precision, bool(precision)):
        own = [model(clip) for clip in _clips(*LENGTHS[ranks.rank])]
        return [output.float().numpy() for output in ranks.reduce_on_first(own, list)]


def _shares_held(model, monkeypatch):
    """The numbers of parameters that are whole, after each gather."""
    held, unshard = [], FSDPModule.unshard

    def noted(self, *args):
        unshard(self, *args)
        held.append(sum(p.numel() for p in model.parameters() if not isinstance(p, DTensor)))

    monkeypatch.setattr(FSDPModule, "unshard", noted)
    return held


def _assert_equal_gradients(model, plain, *inputs):
    """The next gradients are those of the whole model: what ranks evaluated before makes no difference."""
    for each in (model, plain):
        for _ in range(2):
            each(*inputs).square().sum().backward()
    for own, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad.full_tensor(), expected.grad)


def _cases(rank, world):
    ranks, plain = Ranks(rank=rank, world=world), _net()
    model = deepcopy(plain)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(shards, "_LEAST", 1)
        shard(model, device=CPU)
        held = _shares_held(model, monkeypatch)
        found = [_evaluated(ranks, model), _evaluated(ranks, model, precision=torch.bfloat16)]
    whole = max(held)
    _assert_equal_gradients(model, plain, _clips(4)[0])
    return found, whole, sum(p.numel() for p in plain.parameters())


@pytest.mark.usefixtures("sharding")
def test_each_rank_evaluates_its_own_clips_with_the_outputs_of_the_whole_model(on_ranks):
    model, clips = _net(), _clips(*sum(LENGTHS, ()))
    cases = on_ranks(3, _cases)
    for found, _, _ in cases:
        for outputs, precision in zip(found, (None, torch.bfloat16), strict=True):
            with torch.no_grad(), torch.autocast("cpu", precision, bool(precision)):
                expected = [model(clip).float().numpy() for clip in clips]
            assert all((output == other).all() for output, other in zip(outputs, expected, strict=True))
    linear = 6 * 6 + 6
    assert [total for *_, total in cases] == [10 * linear] * 3
    # The head, one of three stages, and one of its blocks; one unit at a time where nothing is evaluated.
    assert [held for _, held, _ in cases] == [linear, 3 * linear, 3 * linear]


class Crossing(nn.Module):
    """Blocks that call each other, in another order for every route; it has no parameters outside of them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Calling() for _ in range(4))

    def forward(self, x, route):
        for first, *then in route:
            x = self.blocks[first](x, [self.blocks[number] for number in then])
        return x


class Calling(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, then=()):
        x = self.linear(x)
        return then[0](x, then[1:]) + x if then else x


ROUTES = (
    [],
    [((2, 3), (0,), (2, 1, 0)), ((1,), (1, 2), (3, 0, 2, 1))],
    [((0, 1, 2, 3), (3, 2), (2, 3))],
)
"""Those of each rank."""


def _crossing(rank, world):
    torch.manual_seed(0)
    model, ranks, x = Crossing(), Ranks(rank=rank, world=world), torch.ones(1, 3)
    plain = deepcopy(model)
    with torch.no_grad():
        expected = [model(x, route) for route in ROUTES[rank]]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(shards, "_LEAST", 1)
        shard(model, device=CPU)
    with uneven_inputs(model, ranks), torch.no_grad():
        found = [model(x, route) for route in ROUTES[rank]]
    _assert_equal_gradients(model, plain, x, ((0,), (1,), (2, 3)))
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.usefixtures("sharding")
def test_blocks_may_call_each_other_in_an_order_that_differs_by_rank(on_ranks):
    assert on_ranks(3, _crossing) == [True, True, True]
