"""A batch that ranks share is normalised as one process normalises it, forward, backward and in what is kept."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import vcycle
from vcycle.errors import PlanError
from vcycle.nn import convert_batchnorm, one_step
from vcycle.nn.partition import BatchPartition
from vcycle.plan import BatchShape, rank_slice


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
    cell = BatchShape(frames=2, size=3, batch=clips, bn_batch=bn_batch)
    return BatchPartition.of(cell, rank=rank, world=world)


def of_rank(rank, world, clips, bn_batch, momentum, micro):
    x, weights = batch(clips)
    places = rank_slice(clips, bn_batch, rank, world)
    own = slice(places.start, places.stop)
    return compute(network(momentum), x[own], weights[own], bn_batch, sharing_of(clips, bn_batch, rank, world), micro)


def assert_as_alone(ranks, alone):
    """All that ranks have computed is what one process has, and their buffers are the same to the last bit."""
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(torch.cat([found["outputs"] for found in ranks]), alone["outputs"], **close)
    torch.testing.assert_close(torch.cat([found["input"] for found in ranks]), alone["input"], **close)
    summed = [sum(grads) for grads in zip(*(found["parameters"] for found in ranks), strict=True)]
    torch.testing.assert_close(summed, alone["parameters"], **close)
    for found in ranks:
        torch.testing.assert_close(found["buffers"], alone["buffers"], **close)
        assert all(torch.equal(a, b) for a, b in zip(found["buffers"], ranks[0]["buffers"], strict=True))


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
    assert_as_alone(ranks, alone)


def pooled_network():
    """Of a 3-D BatchNorm, whose clips have many values, and one after pooling, whose clips have one."""
    torch.manual_seed(1)
    layers = (nn.Conv3d(2, 3, 1), nn.BatchNorm3d(3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.BatchNorm1d(3))
    return nn.Sequential(*layers).double()


def of_pooled_rank(rank, world, clips, bn_batch):
    x, weights = batch(clips)
    places = rank_slice(clips, bn_batch, rank, world)
    own = slice(places.start, places.stop)
    sharing = sharing_of(clips, bn_batch, rank, world)
    return compute(pooled_network(), x[own], weights[own, :, 0, 0, 0], bn_batch, sharing)


@pytest.mark.parametrize(
    ("world", "clips", "bn_batch"),
    [
        (2, 5, 4),  # a rank with the last clip alone, which joins the block of the other where it is one value
        (2, 9, 4),  # which joins a block of its own rank
        (3, 9, 4),
        (2, 6, 1),  # 3 and 3 clips, in blocks of 2 where a clip is one value
    ],
)
def test_ranks_agree_with_one_process_where_a_last_clip_joins_another_block(on_ranks, world, clips, bn_batch):
    x, weights = batch(clips)
    alone = compute(pooled_network(), x, weights[:, :, 0, 0, 0], bn_batch)
    ranks = on_ranks(world, of_pooled_rank, clips, bn_batch)
    assert_as_alone(ranks, alone)


def two_groups(rank, world):
    """Running statistics of a model whose layers have groups of 2 and of 4 clips, after a step of 4."""
    torch.manual_seed(1)
    model = nn.Sequential(convert_batchnorm(nn.BatchNorm3d(2), 2), convert_batchnorm(nn.BatchNorm3d(2), 4)).double()
    own = rank_slice(4, 2, rank, world)
    with one_step(model, sharing_of(4, 2, rank, world)):
        model(batch(4)[0][own.start : own.stop])
    return list(model.buffers())


def test_layers_of_whole_and_of_shared_groups_keep_the_whole_batchs_statistics(on_ranks):
    alone = two_groups(0, 1)
    for found in on_ranks(2, two_groups):
        torch.testing.assert_close(found, alone)


class Clips(torch.utils.data.Dataset):
    """Clips of noise, each brighter than the one before."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand((3, 10, 24, 24), generator=generator, dtype=torch.float64) * index, index % 3


PLAN = vcycle.cascade(vcycle.Baseline(batch=4, frames=8, size=16, clips=12, epochs=12, lr=0.1))


def own_loop(rank, world):
    torch.manual_seed(1)
    body = (nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten())
    model = vcycle.convert_batchnorm(nn.Sequential(*body, nn.BatchNorm1d(4), nn.Linear(4, 3)).double())
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    outputs = []
    for step, (clips, labels) in vcycle.steps(Clips(), PLAN):  # which find the rank
        vcycle.apply(step, model, optimizer, clips)
        with vcycle.one_step(model, vcycle.BatchPartition.of(step)):
            outputs.append(model(clips))
            (cross_entropy(outputs[-1], labels) * (world * len(clips) / step.batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {name.removeprefix("module."): value for name, value in model.state_dict().items()}
    return [each.detach() for each in outputs], state


@pytest.mark.parametrize("world", [2, 3])
def test_an_own_loop_on_ranks_learns_what_it_learns_alone(on_ranks, world):
    assert min(-(-cell.batch // cell.bn_batch) for cell in PLAN.shapes) == 1  # a group that all ranks share
    outputs, state = own_loop(0, 1)
    ranks = on_ranks(world, own_loop)
    for number, expected in enumerate(outputs):
        torch.testing.assert_close(torch.cat([found[number] for found, _ in ranks]), expected)
    for _, found in ranks:
        torch.testing.assert_close(found, state)


def test_the_clips_of_a_rank_are_those_that_the_loader_hands_it():
    for cell in (*PLAN.shapes, BatchShape(frames=8, size=16, batch=5, bn_batch=4)):
        for world in (1, 2, 3, 4):
            sharing = BatchPartition.of(cell, rank=world - 1, world=world)
            assert sharing.rank == world - 1
            assert sharing.clips == tuple(
                len(rank_slice(cell.batch, cell.bn_batch, rank, world)) for rank in range(world)
            )
    for world in (2, 3):
        for rank in range(world):
            loader = vcycle.loader(Clips(), PLAN, rank=rank, world=world)
            for step, (clips, _) in zip(PLAN, loader, strict=True):
                assert len(clips) == BatchPartition.of(step, rank=rank, world=world).clips[rank]


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_the_world_is_refused(rank):
    with pytest.raises(PlanError, match=f"rank {rank} is not one of 2 ranks: 0 to 1 are"):
        BatchPartition.of(PLAN[0], rank=rank, world=2)


def test_the_pieces_of_a_batch_are_cut_at_blocks_and_ranks():
    pieces = BatchPartition(clips=(3, 3, 4), rank=0).pieces(8)
    assert [tuple(piece) for piece in pieces] == [(0, 0, 3), (0, 1, 3), (0, 2, 2), (1, 2, 2)]


def test_a_shared_block_takes_all_clips_of_a_rank_at_once():
    model = convert_batchnorm(network(), 8)
    with (
        pytest.raises(PlanError, match="got 2 clips, but this rank has 3 clips of a batch"),
        one_step(model, BatchPartition(clips=(3, 5), rank=0)),
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
