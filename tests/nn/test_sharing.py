"""A batch that ranks share is normalised as one process normalises it, forward, backward and in what is kept."""

import copy

import pytest
import torch
from torch import nn

from vcycle.data import rank_slice
from vcycle.errors import PlanError
from vcycle.nn import convert_batchnorm, one_step
from vcycle.nn.sharing import Sharing


def network(momentum=0.1):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv3d(2, 3, 1), nn.BatchNorm3d(3, momentum=momentum), nn.ReLU(), nn.BatchNorm3d(3, affine=False)
    )
    return model.double().to(memory_format=torch.channels_last_3d)


def compute(model, clips, weights, bn_batch, sharing=None, micro=None):
    convert_batchnorm(model, bn_batch)
    clips = clips.clone().requires_grad_()
    with one_step(model, sharing):
        outputs = []
        for part, weight in zip(clips.split(micro or len(clips)), weights.split(micro or len(clips)), strict=True):
            outputs.append(model(part))
            (outputs[-1] * weight).sum().backward()
    return {
        "outputs": torch.cat(outputs).detach(),
        "input": clips.grad,
        "parameters": [parameter.grad for parameter in model.parameters()],
        "buffers": list(model.buffers()),
    }


def batch(clips):
    generator = torch.Generator().manual_seed(2)
    shape = (clips, 2, 2, 3, 3)
    offset = torch.arange(clips, dtype=torch.float64).view(-1, 1, 1, 1, 1)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * (1 + offset) + offset
    return x, torch.randn((clips, 3, 2, 3, 3), generator=generator, dtype=torch.float64)


def sharing_of(clips, bn_batch, rank, world):
    return Sharing(clips=tuple(len(rank_slice(clips, bn_batch, r, world)) for r in range(world)), rank=rank)


def of_rank(rank, world, clips, bn_batch, momentum, micro):
    x, weights = batch(clips)
    places = rank_slice(clips, bn_batch, rank, world)
    own = slice(places.start, places.stop)
    return compute(network(momentum), x[own], weights[own], bn_batch, sharing_of(clips, bn_batch, rank, world), micro)


@pytest.mark.parametrize(
    ("world", "clips", "bn_batch", "momentum", "micro"),
    [
        (2, 10, 4, 0.1, None),  # whole blocks: 4 and 6 clips, the last block smaller
        (3, 10, 2, None, 2),  # whole blocks in micro-batches, a cumulative average
        (3, 10, 8, 0.1, None),  # 3, 3 and 4 clips: a block on three ranks, and a rank with clips of two
        (4, 4, 4, 0.1, None),  # a clip each
    ],
)
def test_ranks_give_what_one_process_gives(on_ranks, world, clips, bn_batch, momentum, micro):
    alone = compute(network(momentum), *batch(clips), bn_batch)
    ranks = on_ranks(world, of_rank, clips, bn_batch, momentum, micro)
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(torch.cat([found["outputs"] for found in ranks]), alone["outputs"], **close)
    torch.testing.assert_close(torch.cat([found["input"] for found in ranks]), alone["input"], **close)
    summed = [sum(grads) for grads in zip(*(found["parameters"] for found in ranks), strict=True)]
    torch.testing.assert_close(summed, alone["parameters"], **close)
    for found in ranks:
        torch.testing.assert_close(found["buffers"], alone["buffers"], **close)
        assert all(torch.equal(a, b) for a, b in zip(found["buffers"], ranks[0]["buffers"], strict=True))


def test_the_pieces_of_a_batch_are_cut_at_blocks_and_ranks():
    pieces = Sharing(clips=(3, 3, 4), rank=0).pieces(8)
    assert [tuple(piece) for piece in pieces] == [(0, 0, 3), (0, 1, 3), (0, 2, 2), (1, 2, 2)]


def test_a_shared_block_takes_all_clips_of_a_rank_at_once():
    model = convert_batchnorm(network(), 8)
    with (
        pytest.raises(PlanError, match="got 2 clips, and this rank has 3 of a batch"),
        one_step(model, Sharing(clips=(3, 5), rank=0)),
    ):
        model(batch(2)[0])


@pytest.mark.parametrize("refusal", [False, torch.tensor(False)])
def test_a_step_that_is_not_kept_leaves_the_statistics_as_they_were(refusal):
    model = convert_batchnorm(network(), 2)
    before = copy.deepcopy(list(model.buffers()))
    with one_step(model) as commitment:
        model(batch(4)[0] * float("nan"))
        commitment.keep = refusal
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
    with one_step(model) as commitment:
        model(batch(4)[0])
        commitment.keep = torch.tensor(True)
    kept = list(model.buffers())
    other = convert_batchnorm(network(), 2)
    with one_step(other):
        other(batch(4)[0])
    assert all(torch.equal(a, b) for a, b in zip(kept, other.buffers(), strict=True))
