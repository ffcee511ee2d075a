"""A batch in parts teaches what the whole does, on as little memory as there is."""

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.plan import Baseline, cascade, constant
from vcycle.train.callbacks import Callbacks
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.memory import grow_in_place
from vcycle.train.micro_batching import micro_batch_sizes
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit

BASELINE = Baseline(batch=4, frames=4, size=8, clips=24, steps=24, lr=0.05, bn_batch=4)
PLAN = cascade(BASELINE)
COARSE = PLAN[0]  # the most clips, in several blocks


@pytest.mark.parametrize("size", micro_batch_sizes(COARSE.batch, COARSE.bn_batch)[1:])
def test_micro_batches_give_the_gradients_and_running_statistics_of_the_whole_batch(
    tmp_path, size, trainer, batch_of, largest_difference
):
    whole, parted = trainer(tmp_path / "whole"), trainer(tmp_path / "parted")
    parted.train_step.micro[COARSE.cell] = size
    losses = [trained.search(COARSE, batch_of(COARSE)).loss for trained in (whole, parted)]
    assert parted.model.seen[0] == size
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-12)
    for one, other in zip(whole.gradients[0], parted.gradients[0], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert largest_difference(whole.model, parted.model) < 1e-9
    assert parted.model.body[1].num_batches_tracked == 1


def test_a_run_that_does_not_fit_learns_what_one_that_does_would(noise, tmp_path, net, largest_difference, noisy):
    def run(folder, limit=math.inf, on_message=lambda _: None):
        torch.manual_seed(0)
        return fit(
            plan=PLAN,
            model=net(limit=limit),
            dataset=noise,
            objective=noisy(),
            config=TrainConfig(
                run=RunSection(device="cpu", fit="always"),
                loading=LoadingSection(workers=0),
                optimizer=OptimizerSection(),
            ),
            run=RunFolder(tmp_path / folder),
            callbacks=Callbacks(on_message=on_message),
        )

    told = []
    whole = run("whole")
    parted = run("parted", limit=8, on_message=told.append)
    assert any("micro-batches of 8 clips" in message for message in told)
    assert largest_difference(whole.model, parted.model) < 1e-9


def _under_a_limit(rank, world, folder, trainer, largest_difference, hungry_net):
    import resource

    plan = constant(Baseline(batch=64, frames=4, size=8, clips=64, steps=1, lr=0.05, bn_batch=8))
    warm = trainer(folder / "warm", plan=plan)
    parted, whole = (trainer(folder / name, model=hungry_net, plan=plan) for name in ("parted", "whole"))
    warm.steps()  # what a first step allocates once for all is there before the limit is
    _, most = resource.getrlimit(resource.RLIMIT_AS)

    def size():
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    kept, before = [], size()
    while size() == before:  # what malloc has kept of this process's past would come on top of the room
        kept.append(bytearray(1 << 20))
    room = size() + (320 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (room, most))  # before anything large was freed, which malloc might keep
    parted.search.try_shapes(0)
    parted.steps()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    whole.steps()
    gradients = zip(whole.gradients[-1], parted.gradients[-1], strict=True)
    return {
        "told": parted.told,
        "seen": parted.model.seen,
        "model": largest_difference(whole.model, parted.model),
        "gradients": max((one - other).abs().max().item() for one, other in gradients),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_under_a_real_limit_on_memory_a_batch_is_learned_in_parts(
    on_ranks, tmp_path, trainer, largest_difference, hungry_net
):
    (found,) = on_ranks(1, _under_a_limit, tmp_path, trainer, largest_difference, hungry_net)
    assert found["told"] == [
        "batch shapes tried: 1; 64×4×8² is computed in micro-batches of 32 clips, with the same result"
    ]
    assert found["seen"][-2:] == [32, 32]
    assert found["gradients"] < 1e-9
    assert found["model"] < 1e-9


@pytest.mark.gpu
def test_a_change_of_shape_takes_little_more_memory_than_the_larger_shape_alone():
    net = nn.Sequential(nn.Conv3d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv3d(64, 64, 3, padding=1)).cuda()
    grow_in_place()

    def reserved(*batches):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for batch, frames, size in batches:
            net(torch.rand(batch, 3, frames, size, size, device="cuda")).sum().backward()
            net.zero_grad()
        return torch.cuda.max_memory_reserved()

    shapes = [(32, 4, 80), (16, 8, 80), (16, 4, 112), (8, 8, 112)]
    alone = max(reserved(shape) for shape in shapes)
    assert reserved(*shapes, *reversed(shapes)) <= 1.1 * alone
