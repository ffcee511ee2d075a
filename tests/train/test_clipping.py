"""Gradient clipping is PyTorch's, whatever a step's gradients are computed by, and their norm is in the log."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from vcycle.data import loader
from vcycle.data.config import LoadingSection
from vcycle.errors import RecipeError
from vcycle.nn import apply, convert_batchnorm, one_step
from vcycle.plan import Baseline, StepDecay, constant, multigrid
from vcycle.tasks.recognition import Recognition
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.optimizer import build_optimizer
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

PLAN = multigrid(
    Baseline(batch=5, frames=4, size=8, clips=24, steps=40, lr=0.02, decay=StepDecay(milestones=(20, 30)), bn_batch=4)
)
MOST = 0.3
"""A norm that some steps are below and some above."""


class Net(nn.Module):
    """A convolution, a norm, a head; computes in the precision of its weights."""

    def __init__(self, limit=1000):
        super().__init__()
        self.limit, self.seen = limit, []
        self.body, self.norm, self.head = nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.Linear(4, 4)

    def forward(self, clips):
        self.seen.append(len(clips))
        if len(clips) > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(clips)} MiB.")
        return self.head(self.norm(self.body(clips.to(self.head.weight.dtype))).relu().mean((2, 3, 4)))


class Precisely(Recognition):
    """The task with its loss in the network's own precision."""

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(self.inputs(clips)), labels)


TASK = Precisely(classes=4)


def train(noise, folder, *, plan=PLAN, clip=MOST, ranks=SINGLE_PROCESS, double=False, limit=1000, **run):
    """Train; the weights, and the lines of the steps."""
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    torch.manual_seed(0)
    try:
        fit(
            TrainConfig(run=RunSection(device="cpu", **run), loading=LoadingSection(workers=0), clip_grad_norm=clip),
            plan=plan,
            model=(model := Net(limit)),
            dataset=noise,
            objective=TASK,
            run=RunFolder(folder),
            ranks=ranks,
        )
    finally:
        torch.set_default_dtype(torch.float32)
    lines = [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]
    return model, lines


def by_hand(noise, plan, *, scaler=None, dtype=None):
    """The same with PyTorch's own clipping in a plain loop; the norms, and the weights."""
    torch.manual_seed(0)
    model = convert_batchnorm(Net()).to(memory_format=torch.channels_last_3d)
    optimizer, norms = build_optimizer(OptimizerSection(), model), []
    for step, batch in zip(plan, loader(noise, plan), strict=True):
        apply(step, model, optimizer)
        optimizer.zero_grad()
        with one_step(model):
            # The loss itself is in full precision, as everything that a network gives.
            def forward(clips):
                with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                    return model(clips).float()

            loss = TASK.loss(forward, batch.clips, batch.labels)
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        # In the order in which the optimizer has them: the sum of squares is rounded.
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norms.append(clip_grad_norm_(parameters, MOST).item())
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return norms, model


def assert_same(one, other):
    for key, value in other.state_dict().items():
        assert torch.equal(one.state_dict()[key], value), key


def test_it_is_that_of_pytorch_and_the_norm_is_logged_at_every_step(noise, tmp_path):
    model, lines = train(noise, tmp_path / "ours")
    norms, expected = by_hand(noise, PLAN)
    assert_same(model, expected)
    assert [line["grad_norm"] for line in lines] == norms
    assert min(norms) < MOST < max(norms)
    _, unclipped = train(noise, tmp_path / "plain", clip=None)
    assert unclipped[0]["grad_norm"] == norms[0]
    assert unclipped[-1]["loss"] != lines[-1]["loss"]


def test_fp16_gradients_are_unscaled_before_they_are_clipped(noise, tmp_path, monkeypatch):
    monkeypatch.setattr("vcycle.train.accelerator.conv3d_is_sound", lambda *_: True)
    plan = constant(Baseline(batch=4, frames=4, size=8, clips=24, steps=6, lr=0.02, bn_batch=4))
    model, lines = train(noise, tmp_path, plan=plan, precision="fp16")
    norms, expected = by_hand(noise, plan, scaler=torch.amp.GradScaler("cpu"), dtype=torch.float16)
    assert [line["grad_norm"] for line in lines] == norms
    assert max(norms) < 100  # and not times the scale, 65,536
    assert_same(model, expected)


# However a step is computed ---------------------------------------------------------------------------


def learned(folder):
    """The norms, and the weights of the last checkpoint."""
    lines = [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]
    checkpoint = latest_checkpoint(RunFolder(folder).checkpoints)[0]
    return [line["grad_norm"] for line in lines], {key: value.numpy() for key, value in checkpoint.model.items()}


def assert_close(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-7)
    for key, value in other[1].items():
        np.testing.assert_allclose(one[1][key], value, rtol=0, atol=1e-9, err_msg=key)


@pytest.fixture(scope="module")
def alone(noise, tmp_path_factory):
    """One process that computes every batch at once."""
    folder = tmp_path_factory.mktemp("alone")
    train(noise, folder, double=True)
    norms, weights = learned(folder)
    assert min(norms) < MOST < max(norms)
    return norms, weights


def test_micro_batches_are_clipped_once_and_together(noise, tmp_path, alone):
    model, _ = train(noise, tmp_path, double=True, limit=16, fit="always")
    assert max(model.seen[-len(PLAN) :]) <= 16
    assert_close(learned(tmp_path), alone)


def _on_rank(rank, world, noise, folder):
    for way, shard in (("copies", False), ("shards", True)):
        train(noise, folder / way, ranks=Ranks(rank=rank, world=world), double=True, shard=shard)


@pytest.mark.usefixtures("sharding")
def test_ranks_with_all_of_the_model_or_a_part_of_it_clip_by_the_same_norm(on_ranks, noise, tmp_path, alone):
    on_ranks(2, _on_rank, noise, tmp_path)
    for way in ("copies", "shards"):
        assert_close(learned(tmp_path / way), alone)


# By a recipe ------------------------------------------------------------------------------------------


def test_a_recipe_says_so(make_training, newest, tmp_path):
    few = ["data.cache=24", "plan=short", "training.steps=4", "training.decay=constant", "training.warmup=null"]
    make_training(*few).run(tmp_path / "plain")
    make_training(*few, "training.clip_grad_norm=1e-3").run(tmp_path / "clipped")
    plain, clipped = (newest(tmp_path / name).model for name in ("plain", "clipped"))
    assert not all(torch.equal(value, clipped[key]) for key, value in plain.items())
    with pytest.raises(RecipeError, match=r"key 'training\.clip_grad_norm' is 0: .*greater than 0"):
        make_training("training.clip_grad_norm=0")
