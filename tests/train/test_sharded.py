"""Ranks that hold parts of a model learn what one process that holds all of it does."""

import numpy as np
import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import VcycleError
from vcycle.plan import Baseline, Role, StepDecay, constant, multigrid
from vcycle.tasks.recognition import Recognition, RecognitionMetrics
from vcycle.train import shards
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.config import EmaSpec, OptimizerSection, RunSection, TrainConfig
from vcycle.train.memory import memory_of
from vcycle.train.micro_batching import MicroBatchRecord, MicroBatchSize
from vcycle.train.optimizer import build_optimizer
from vcycle.train.ranks import Ranks
from vcycle.train.run import RunFolder
from vcycle.train.shards import blocks_of, gather_state, is_sharded, local_shard, meta_copy, shard, unsharded_copy
from vcycle.train.speed import Speed
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

CPU = torch.device("cpu")
PLAN = multigrid(
    Baseline(
        batch=5,
        frames=4,
        size=8,
        clips=24,
        steps=40,
        lr=0.02,
        decay=StepDecay(milestones=(20, 30)),
        bn_batch=4,
        roles={"late": Role(multiplier=0.5, frozen_until=2)},
    )
)
"""Batches of 5 to 80 clips: some cannot be divided by ranks, some have fewer blocks than there are ranks."""


BRIEF = constant(Baseline(batch=5, frames=2, size=4, clips=24, steps=5, lr=0.02))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv3d(5, 5, 3, padding=1), nn.BatchNorm3d(5)

    def forward(self, x):
        return x + self.norm(self.conv(x)).relu()


class Net(nn.Module):
    """Blocks that repeat, one of them used twice; what is frozen; a parameter of fewer rows than there are ranks."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.stem = nn.Conv3d(3, 5, 1)
        self.blocks = nn.Sequential(Block(), Block())
        self.scale = nn.Parameter(torch.ones(1, 5))
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(5, 4)
        self.stem.bias.requires_grad_(False)
        self.register_buffer("forwards", torch.zeros(()), persistent=False)

    def forward(self, clips):
        self.forwards += 1
        x = self.blocks(self.stem(clips.to(self.head.weight.dtype)))
        x = self.blocks[0](x).mean((2, 3, 4)) * self.scale
        return self.head(self.dropout(x))


class Precisely(Recognition):
    """The task with its loss in the network's own precision."""

    def loss(self, model, clips, labels, *, block=None):
        return nn.functional.cross_entropy(model(self.inputs(clips)), labels)


def role_of(name):
    return "late" if name.startswith("head") else None


def look(model, device):
    """A validation that only says what a model makes of a clip."""
    assert not is_sharded(model)
    was, _ = model.training, model.eval()
    with torch.no_grad():
        score = model(torch.ones(1, 3, 2, 4, 4)).sum().item()
    model.train(was)
    return RecognitionMetrics(top1=score, top5=0.0, loss=0.0, samples=1, unreadable=0, protocol="")


def train(rank, world, noise, folder, until=None, *, dropout=0.0, how=None, **more):
    """Train, until a step where one is given: the largest share of the parameters that was here between steps."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    model = Net(dropout)
    total, held = sum(p.numel() for p in model.parameters()), []

    def stop(report):
        if report.step.index + 1 == until:
            raise InterruptedError

    def watch(trained):
        held.append(sum(local_shard(p.detach()).numel() for p in trained.parameters()) / total)

    try:
        fit(
            plan=PLAN,
            model=model,
            dataset=noise,
            objective=Precisely(classes=4),
            config=TrainConfig(
                run=RunSection(**{"device": "cpu", "save_every": 4, "validate_every": 8, "shard": True, **(how or {})}),
                loading=LoadingSection(workers=0),
                optimizer=more.pop("optimizer", OptimizerSection()),
                precise_bn=10,
                ema=EmaSpec(decay=0.9, clips=5),
            ),
            run=RunFolder(folder),
            ranks=Ranks(rank=rank, world=world),
            role_of=role_of,
            validate=look,
            evaluation=RecognitionMetrics,
            resume=True,
            monitor=watch,
            callbacks=Callbacks(on_step=stop),
            **more,
        )
    except InterruptedError:
        pass
    finally:
        torch.set_default_dtype(torch.float32)
    return max(held)


def record(folder):
    """What was trained on, what was found, and what was learned."""
    steps = [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "step"]
    checkpoint = latest_checkpoint(RunFolder(folder).checkpoints)[0]
    exact = [(line["step"], line["ids_crc32"], line["lr"], line["batch"]) for line in steps]
    found = [line["loss"] for line in steps] + [point["evaluation"]["top1"] for point in checkpoint.totals["curve"]]
    state = {f"model.{name}": value for name, value in checkpoint.model.items()}
    state |= {f"average.{name}": value for name, value in checkpoint.averaged.items()}
    for place, of_parameter in checkpoint.optimizer["state"].items():
        state |= {f"optimizer.{place}.{name}": value for name, value in of_parameter.items()}
    return exact, found, {name: value.numpy() for name, value in state.items()}


def assert_equal(found, expected, atol=1e-9):
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=atol)
    assert found[2].keys() == expected[2].keys()
    for name, value in expected[2].items():
        np.testing.assert_allclose(found[2][name], value, rtol=0, atol=atol, err_msg=name)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(shards, "_LEAST", 1)


@pytest.fixture(scope="module")
def alone(noise, tmp_path_factory):
    """What one process learns."""
    folder = tmp_path_factory.mktemp("alone")
    train(0, 1, noise, folder)
    return record(folder)


def _whole_and_cut(rank, world, noise, folder):
    held = train(rank, world, noise, folder / "whole")
    train(rank, world, noise, folder / "cut", 7, how={"fit": "always"})
    train(rank, world, noise, folder / "cut")
    train(rank, world, noise, folder / "dropping", dropout=0.2)
    train(rank, world, noise, folder / "dropping and cut", 7, dropout=0.2)
    train(rank, world, noise, folder / "dropping and cut", dropout=0.2)
    return held


@pytest.mark.usefixtures("sharding")
def test_two_ranks_learn_what_one_does_with_half_of_it_each_and_repeat_themselves(on_ranks, noise, tmp_path, alone):
    held = on_ranks(2, _whole_and_cut, noise, tmp_path)
    whole = record(tmp_path / "whole")
    assert_equal(whole, alone)
    assert max(held) < 0.65  # of five channels one rank has three
    assert_equal(record(tmp_path / "cut"), whole, atol=0)
    assert_equal(record(tmp_path / "dropping and cut"), record(tmp_path / "dropping"), atol=0)


def _in_parts_and_in_one(rank, world, noise, folder, optimizer):
    """Go on sharded, then not, then sharded in micro-batches of which ranks have different numbers."""
    often = {"save_every": 2}
    train(rank, world, noise, folder, 7, how=often, optimizer=optimizer)
    saved = [saved_steps(folder)]
    train(rank, world, noise, folder, 9, how={**often, "shard": False}, optimizer=optimizer)
    saved.append(saved_steps(folder))
    if rank == 0:
        place = {"name": "CPU", "memory": memory_of(CPU), "ranks": world, "sharded": True}
        fits = {cell: MicroBatchSize(micro=cell.bn_batch) for cell in PLAN.shapes if cell.batch > 5}
        MicroBatchRecord(RunFolder(folder).fit, place).write(fits)
    train(rank, world, noise, folder, optimizer=optimizer)
    return saved


def saved_steps(folder):
    """The step of the newest checkpoint."""
    return latest_checkpoint(RunFolder(folder).checkpoints)[0].step


@pytest.mark.usefixtures("sharding")
@pytest.mark.parametrize("optimizer", [OptimizerSection(), OptimizerSection(name="adamw")], ids=["sgd", "adamw"])
def test_a_run_goes_on_sharded_or_not_on_other_ranks_and_in_micro_batches(on_ranks, noise, tmp_path, optimizer):
    train(0, 1, noise, tmp_path / "alone", optimizer=optimizer)
    train(0, 1, noise, tmp_path / "cut", 3, how={"save_every": 2}, optimizer=optimizer)
    assert saved_steps(tmp_path / "cut") == 2
    (saved, *_) = on_ranks(3, _in_parts_and_in_one, noise, tmp_path / "cut", optimizer)
    assert saved == [6, 8]
    assert_equal(record(tmp_path / "cut"), record(tmp_path / "alone"), atol=1e-8 if optimizer.name == "adamw" else 1e-9)


def test_the_plan_has_the_cases():
    blocks = [-(-step.batch // step.bn_batch) for step in PLAN.iterate(6)]
    assert any(count < 3 for count in blocks)  # blocks on several of three ranks
    assert any(count > 3 and count % 3 for count in blocks)  # ranks with more micro-batches than others


# What can go wrong in a step --------------------------------------------------------------------------


class Steep(nn.Module):
    """Tells classes by the mean of a clip; the slope of one of its weights is infinite at the given steps."""

    def __init__(self, steep=()):
        super().__init__()
        self.steep, self.step = steep, -1
        self.inner, self.head = nn.Linear(3, 6), nn.Linear(6, 4)

    def forward(self, clips):
        self.step += 1
        logits = self.head(self.inner(clips.mean((2, 3, 4))))
        if self.step in self.steep:
            # The square root has no slope at 0: 0 * inf.
            logits = logits + (0 * self.head.weight[0]).sum().sqrt()
        return logits


def _learn(rank, world, noise, folder, **how):
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    model, optimizer = Steep(how.pop("steep", ())), how.pop("optimizer", OptimizerSection())
    fitted = fit(
        plan=BRIEF,
        model=model,
        dataset=noise,
        objective=Recognition(classes=4),
        config=TrainConfig(
            run=RunSection(device="cpu", shard=True, **how),
            loading=LoadingSection(workers=0),
            optimizer=optimizer,
        ),
        run=RunFolder(folder),
        ranks=Ranks(rank=rank, world=world),
    )
    checkpoint = latest_checkpoint(RunFolder(folder).checkpoints)[0]
    return fitted.skipped, checkpoint.scaler, {name: value.numpy() for name, value in fitted.model.state_dict().items()}


WAYS = {
    "plain": {},
    "spoilt": {"steep": (1, 3)},
    "compressed": {"compress": "bf16"},
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "adamw": {"optimizer": OptimizerSection(name="adamw")},
}


def _learn_in_every_way(rank, world, noise, folder):
    found = {name: _learn(rank, world, noise, folder / name, **how) for name, how in WAYS.items()}
    return found, world == 1 or _is_told_on_the_device()


def _is_told_on_the_device():
    """Whether a fused optimizer that is told that its second step is not to be made does not make it."""
    model = nn.Linear(3, 5)
    shard(model, device=CPU)
    optimizer = build_optimizer(OptimizerSection(name="adamw"), model, fused=True)
    steps = []
    for found_inf in (0.0, 1.0):
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        model(torch.ones(2, 3)).square().mean().backward()
        optimizer.found_inf = torch.tensor(found_inf)
        optimizer.step()
        steps.append(gather_state(model.state_dict(), keep=True)["weight"])
    return torch.equal(*steps)


@pytest.mark.usefixtures("sharding")
def test_every_way_of_training_learns_on_ranks_what_it_does_alone(on_ranks, noise, tmp_path):
    (first, told), (second, _) = on_ranks(2, _learn_in_every_way, noise, tmp_path / "ranks")
    one, _ = _learn_in_every_way(0, 1, noise, tmp_path / "one")
    tolerances = {"compressed": 0.02, "fp16": 0.02, "bf16": 0.02}
    for name, (skipped, scaler, weights) in one.items():
        for found in (first[name], second[name]):
            assert found[:2] == (skipped, scaler)
            for key, value in weights.items():
                np.testing.assert_allclose(found[2][key], value, rtol=0, atol=tolerances.get(name, 1e-5), err_msg=name)
    assert one["spoilt"][0] == 2
    assert any((first["compressed"][2][key] != first["plain"][2][key]).any() for key in first["plain"][2])
    assert told


# What is cut, and what is not -------------------------------------------------------------------------


class Residual(nn.Module):
    """A hundred parameters, in a sequence of its own, for each unit of width."""

    def __init__(self, width):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(50, width, bias=False), nn.Linear(50, width, bias=False))


def test_blocks_are_what_repeats_inner_ones_first_and_small_ones_stay_together():
    model = nn.Module()
    model.stem = nn.Sequential(nn.Linear(50, 90), nn.ReLU())
    model.stages = nn.ModuleList(nn.Sequential(*(Residual(width) for _ in range(3))) for width in (1, 4, 16))
    model.head = nn.Linear(50, 90)
    names = {module: name for name, module in model.named_modules()}
    found = {least: [names[block] for block in blocks_of(model, least)] for least in (1000, 1300, 400, 5000)}
    residuals = ["stages.2.0", "stages.2.1", "stages.2.2"]
    assert found[1000] == ["stages.1", *residuals]
    assert found[1300] == residuals
    assert found[400] == ["stages.1.0", "stages.1.1", "stages.1.2", *residuals]
    assert found[5000] == []


def test_what_lies_in_several_blocks_is_left_to_the_whole():
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    assert blocks_of(tied, 1) == [tied[1]]
    assert blocks_of(nn.ModuleList([nn.ModuleList([nn.Linear(4, 4)]), nn.ModuleList([nn.Linear(4, 4)])]), 1) == []


def test_an_outline_takes_no_memory_and_is_assembled_to_the_model_itself():
    model = Net()
    model.register_buffer("kept", torch.arange(3.0), persistent=False)
    drawn = meta_copy(model)
    assert all(tensor.is_meta for tensor in [*drawn.parameters(), *drawn.buffers()])
    whole = unsharded_copy(model, drawn)
    for (name, mine), (_, theirs) in zip(whole.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(mine, theirs), name
        assert mine is not theirs
    assert torch.equal(whole.kept, model.kept)


def test_what_cannot_be_sharded_is_refused():
    model = nn.Linear(2, 2)
    model.scale = nn.Parameter(torch.ones(()))
    with pytest.raises(VcycleError, match=r"run\.shard is true, but parameter scale is a scalar"):
        shard(model, device=CPU)
    with pytest.raises(VcycleError, match=r"run\.compile and run\.shard are both true"):
        Speed(compile=True).refuse(CPU, world=2, mixes=False, sharded=True)
