"""Ranks of which one is asked to end: all give up their validation, wherever they are in it, and none waits in vain."""

import os
import signal

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.plan import Baseline, constant
from vcycle.tasks.recognition import Recognition, RecognitionMetrics
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.stopping import Stopped, signals
from vcycle.train.trainer import fit


class GivenUp(Exception):  # noqa: N818 -- not an error
    pass


def give_up():
    raise GivenUp


def _work(ranks, *, pieces, wish, exchanges):
    """How many pieces a rank has done when it gave up, in work of which the wish comes at one; None if it did not."""
    done = []
    try:
        with ranks.all_or_none(lambda: len(done) > wish, give_up) as look:
            for piece in range(pieces):
                look()
                done.append(piece)
            if exchanges:
                ranks.reduce_on_first(done, len)
    except GivenUp:
        return len(done)
    return None


def _cases(rank, world):
    ranks, never = Ranks(rank=rank, world=world), 99
    wishes = (never, 1, never)[rank]
    found = [
        _work(ranks, pieces=rank, wish=wishes, exchanges=True),  # it comes to the last of its work
        _work(ranks, pieces=2 + rank, wish=wishes, exchanges=True),
        _work(ranks, pieces=4 - rank, wish=wishes, exchanges=False),
        _work(ranks, pieces=2, wish=1, exchanges=True),  # all of them
        _work(ranks, pieces=2, wish=never, exchanges=True),
    ]
    return found, ranks.all_gather_ints([rank])


def test_all_give_up_wherever_they_are_and_go_on_exchanging_afterwards(on_ranks):
    found = on_ranks(3, _cases)
    assert [cases for cases, _ in found] == [
        [None, 2, 4, 2, None],
        [None, 2, 2, 2, None],
        [None, 4, 2, 2, None],
    ]
    assert {str(table) for _, table in found} == {"[[0], [1], [2]]"}


def test_alone_it_is_given_up_at_once():
    with pytest.raises(GivenUp), SINGLE_PROCESS.all_or_none(lambda: True, give_up) as look:
        look()


PLAN = constant(Baseline(batch=6, frames=2, size=4, clips=24, steps=12, lr=0.02, bn_batch=2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm3d(3), nn.Linear(3, 4)

    def forward(self, clips):
        return self.head(self.norm(clips).mean((2, 3, 4)))


def _train(rank, world, noise, folder, shard, struck=None):
    """Train; in the second validation, one rank is sent a signal. By what it was ended, and the forwards in each."""
    torch.manual_seed(0)
    ranks, forwards = Ranks(rank=rank, world=world), []

    def validate(model, device):
        forwards.append(0)
        model.eval()
        for piece in range(2 + 4 * rank):
            if (rank, len(forwards), piece) == (struck, 2, 2):
                os.kill(os.getpid(), signal.SIGUSR1)
            with torch.no_grad():
                found = model(torch.full((1, 3, 2, 4, 4), float(piece))).sum().item()
            forwards[-1] += 1
        model.train()
        top1 = ranks.reduce_on_first([found], lambda sums: sums[0])
        return RecognitionMetrics(top1=top1, top5=0.0, loss=0.0, samples=1, unreadable=0, protocol="")

    try:
        with signals(on_stop_request=lambda _: None):
            fit(
                plan=PLAN,
                model=Net(),
                dataset=noise,
                objective=Recognition(classes=4),
                config=TrainConfig(
                    run=RunSection(device="cpu", save_every=100, shard=shard),
                    loading=LoadingSection(workers=0),
                    optimizer=OptimizerSection(),
                ),
                run=RunFolder(folder),
                ranks=ranks,
                validate=validate,
                evaluation=RecognitionMetrics,
                resume=True,
            )
    except Stopped as stopped:
        return stopped.signal, forwards
    return None, forwards


def _whole_and_cut_short(rank, world, noise, folder, shard):
    _train(rank, world, noise, folder / "whole", shard)
    ended = _train(rank, world, noise, folder / "cut", shard, struck=1)
    Ranks(rank=rank, world=world).wait()  # until the first has saved
    kept = latest_checkpoint(RunFolder(folder / "cut").checkpoints)[0]
    again = _train(rank, world, noise, folder / "cut", shard)
    return ended, (kept.step, kept.totals["unevaluated"], len(kept.totals["curve"])), again


@pytest.mark.parametrize("shard", [False, True], ids=["replicated", "sharded"])
def test_a_validation_of_several_ranks_is_cut_short_and_done_by_the_resumed_run(
    on_ranks, noise, tmp_path, shard, request
):
    if shard:
        request.getfixturevalue("sharding")
    first, second = on_ranks(2, _whole_and_cut_short, noise, tmp_path, shard)
    assert first[0] == (signal.SIGTERM, [2, 2])  # all of its share, and told of the wish where shares are put together
    assert second[0] == (signal.SIGUSR1, [6, 2])
    assert first[1] == second[1] == (8, True, 1)
    assert first[2] == (None, [2, 2])
    checkpoints = [latest_checkpoint(RunFolder(tmp_path / name).checkpoints)[0] for name in ("whole", "cut")]
    assert checkpoints[0].totals["curve"] != []
    for key, value in checkpoints[0].model.items():
        assert torch.equal(value, checkpoints[1].model[key])
    measured = [[point["evaluation"] for point in each.totals["curve"]] for each in checkpoints]
    assert measured[0] == measured[1]
