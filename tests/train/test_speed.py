"""Faster steps teach what plain ones do: compiled, recorded, in fp16, by a fused optimizer."""

import os
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import CheckpointError, VcycleError
from vcycle.nn import convert_batchnorm
from vcycle.plan import Baseline, Role, Scale, cascade, constant
from vcycle.tasks.classification.objective import Recognition
from vcycle.tasks.recognition import RecognitionMetrics
from vcycle.train import speed as speeds
from vcycle.train import step as training_step
from vcycle.train.accelerator import make_accelerator, slowness
from vcycle.train.callbacks import Callbacks
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.config import EmaSpec, OptimizerSection, RunSection, TrainConfig
from vcycle.train.optimizer import build_optimizer
from vcycle.train.ranks import SINGLE_PROCESS, Ranks
from vcycle.train.run import RunFolder
from vcycle.train.speed import Speed
from vcycle.train.state import TrainState
from vcycle.train.step import TrainStep
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines

CPU = torch.device("cpu")
BASELINE = Baseline(batch=2, frames=4, size=8, clips=24, steps=15, lr=0.05, bn_batch=2)
SHAPES = (Scale.of(1, 0.5), Scale.of(1, 1))
PLAN = cascade(BASELINE, shapes=SHAPES)
TASK = Recognition(classes=4)


class Net(nn.Module):
    """All that is particular: a convolution, a norm, dropout, and a part with a role."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(3, 4, 3, padding=1, bias=False), nn.BatchNorm3d(4), nn.ReLU())
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(4, 4)

    def forward(self, clips):
        return self.head(self.drop(self.body(clips).mean((2, 3, 4))))


def trained(noise, folder, *, plan=PLAN, model=None, resume=False, on_step=lambda _: None, told=None, ema=None, **how):
    """Train from nothing; what was learned, and the losses."""
    torch.manual_seed(0)
    found = fit(
        plan=plan,
        model=model or Net(),
        dataset=noise,
        objective=TASK,
        config=TrainConfig(
            run=RunSection(device="cpu", save_every=1, **how),
            loading=LoadingSection(workers=0),
            optimizer=OptimizerSection(),
            ema=ema,
        ),
        run=RunFolder(folder),
        resume=resume,
        callbacks=Callbacks(on_step=on_step, on_message=(told if told is not None else []).append),
        evaluation=RecognitionMetrics,
    )
    losses = [line["loss"] for line in JsonLines(RunFolder(folder).log).read() if "loss" in line]
    return found.model.state_dict(), losses


def stopped_at(step):
    def stop(report):
        if report.step.index == step:
            raise InterruptedError

    return stop


def assert_close(state, other, **tolerance):
    for name, value in state.items():
        torch.testing.assert_close(value, other[name], **tolerance)


def assert_same(state, other):
    assert_close(state, other, rtol=0, atol=0)


@pytest.fixture
def compilations(monkeypatch):
    """Compile without a compiler: graphs are taken and differentiated as ever, and then run as they are."""
    from torch._dynamo.backends.debugging import aot_eager

    seen = []

    def backend(graph, inputs, **_):
        seen.append([each.shape for each in inputs if isinstance(each, torch.Tensor)][-1])
        return aot_eager(graph, inputs)

    torch.compiler.reset()
    monkeypatch.setattr(speeds, "_BACKEND", backend)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    yield seen
    torch.compiler.reset()


def test_a_compiled_training_learns_what_a_plain_one_does(noise, tmp_path, compilations):
    told = []
    ema = EmaSpec(decay=0.5, clips=2)
    plain, losses = trained(noise, tmp_path / "plain", ema=ema)
    found, compiled = trained(noise, tmp_path / "compiled", ema=ema, compile=True, told=told)
    assert compiled == pytest.approx(losses, rel=1e-5)
    assert_close(found, plain, rtol=1e-4, atol=1e-6)
    assert found["body.1.num_batches_tracked"] == len(PLAN)
    assert told == ["compiled 1 of 2: 8×4×4²", "compiled 2 of 2: 2×4×8²"]
    assert len(compilations) == 2  # before the first step, and never again


def test_a_resumed_compiled_training_is_the_same_to_the_bit(noise, tmp_path, compilations):
    plan = constant(replace(BASELINE, steps=3))
    whole, losses = trained(noise, tmp_path / "whole", plan=plan, compile=True)
    with pytest.raises(InterruptedError):
        trained(noise, tmp_path / "cut", plan=plan, compile=True, on_step=stopped_at(1))
    resumed, again = trained(noise, tmp_path / "cut", plan=plan, compile=True, resume=True)
    assert again == losses
    assert_same(resumed, whole)


def test_micro_batches_are_compiled_once_for_a_shape_and_give_the_whole_batch(noise, tmp_path, compilations):
    gradients = {}
    for name, micro, speed in (("whole", None, Speed()), ("parts", 2, Speed(compile=True))):
        update, state = made(tmp_path, speed)
        state.model.drop.p = 0.0
        if micro is not None:
            update.micro[PLAN[0].cell] = micro
        gradients[name] = learn(update, state, noise, steps=1)
        gradients[name] |= {key: value for key, value in state.model.state_dict().items() if "running" in key}
    assert_close(gradients["parts"], gradients["whole"], rtol=1e-4, atol=1e-6)
    assert len(compilations) == 1


def test_what_cannot_be_compiled_says_so_in_a_line(noise, tmp_path, compilations, monkeypatch):
    def backend(graph, inputs, **_):
        raise RuntimeError("no kernel for this\nand more")

    monkeypatch.setattr(speeds, "_BACKEND", backend)
    with pytest.raises(VcycleError, match=r"cannot be compiled \(.*\): set run\.compile=false") as caught:
        trained(noise, tmp_path, compile=True)
    assert "\n" not in str(caught.value)


def test_blocks_that_ranks_share_are_not_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    with pytest.raises(
        VcycleError, match=r"run\.compile is true, but BatchNorm blocks of 2 clips of the batch 2×4×8² span sev"
    ):
        made(tmp_path, Speed(compile=True), ranks=Ranks(rank=0, world=2))


def test_a_cpu_without_a_compiler_is_told_of(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(VcycleError, match=r"run\.compile is true, but there is no C\+\+ compiler \(.+\).*false"):
        Speed(compile=True).refuse(CPU, world=1, mixes=False)
    Speed(compile=True).refuse(torch.device("cuda"), world=2, mixes=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("VCYCLE_TEST_COMPILER" not in os.environ, reason="compiling takes a minute: VCYCLE_TEST_COMPILER=1")
def test_the_compiler_itself_gives_what_is_written_and_draws_the_same_dropout(noise, tmp_path):
    torch.compiler.reset()
    found = {}
    for name, speed in (("plain", Speed()), ("compiled", Speed(compile=True))):
        update, state = made(tmp_path, speed)
        learn(update, state, noise, steps=1)
        found[name] = state.model.state_dict()
    assert_close(found["compiled"], found["plain"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("device", "world", "mixes", "reason"),
    [
        ("cpu", 1, False, "this run is on a CPU, which has no CUDA graphs"),
        ("cuda", 4, False, "gradients are exchanged between 4 ranks"),
        ("cuda", 1, True, r"augment\.mixup and augment\.cutmix draw anew"),
    ],
)
def test_graphs_are_refused_by_name_where_they_cannot_be(device, world, mixes, reason):
    with pytest.raises(VcycleError, match=rf"run\.graphs is true, but {reason}.*: set run\.graphs=false"):
        Speed(graphs=True).refuse(torch.device(device), world=world, mixes=mixes)
    Speed(graphs=True).refuse(torch.device("cuda"), world=1, mixes=False)


class Played:
    """Records by doing work again; counts what is recorded and played."""

    def __init__(self):
        self.recorded = self.played = 0
        self.norms = []

    def __call__(self, work):
        self.recorded += 1
        before = [len(norm._pending) for norm in self.norms]
        loss = work()
        kept = [norm._pending[count:] for norm, count in zip(self.norms, before, strict=True)]

        def play():
            self.played += 1
            before = [len(norm._pending) for norm in self.norms]
            loss.copy_(work())
            for norm, count, old in zip(self.norms, before, kept, strict=True):
                for ours, new in zip(old, norm._pending[count:], strict=True):
                    ours.mean.copy_(new.mean)
                    ours.m2.copy_(new.m2)
                del norm._pending[count:]

        return loss, play


@pytest.mark.parametrize("micro", [None, 2])
def test_a_recorded_training_is_a_plain_one_to_the_bit(noise, tmp_path, monkeypatch, micro):
    plan = cascade(replace(BASELINE, roles={"head": Role(frozen_until=2)}), shapes=SHAPES)
    played = Played()
    monkeypatch.setattr(training_step, "on_cuda", lambda: played)
    monkeypatch.setattr(Speed, "refuse", lambda *_, **__: None)
    found = {}
    for name, speed in (("plain", Speed()), ("recorded", Speed(graphs=True))):
        update, state = made(tmp_path, speed, plan)
        played.norms = update._norms
        if micro is not None:
            update.micro[plan[0].cell] = micro
        found[name] = learn(update, state, noise, steps=len(plan)) | state.model.state_dict()
    assert_same(found["recorded"], found["plain"])
    assert played.recorded == 2
    assert played.played == sum(step.batch // micro if micro else 1 for step in plan)


def made(folder, speed, plan=PLAN, ranks=SINGLE_PROCESS):
    """An update of a new model."""
    torch.manual_seed(0)
    model = convert_batchnorm(Net(), plan[0].bn_batch).train()

    def role_of(name):
        return "head" if plan.baseline.roles and name.startswith("head") else None

    state = TrainState(
        run=RunFolder(folder),
        plan=plan,
        seed=0,
        model=model,
        optimizer=build_optimizer(OptimizerSection(), model, role_of),
    )
    return TrainStep(make_accelerator(RunSection(device="cpu")), TASK, state, ranks, speed=speed), state


def learn(update, state, noise, steps):
    """Take some steps; the last one's gradients."""
    from vcycle.data import loader

    gradients = {}

    def note(*_):
        for name, parameter in state.model.named_parameters():
            gradients[f"gradient of {name}"] = torch.zeros(()) if parameter.grad is None else parameter.grad.clone()

    state.optimizer.register_step_pre_hook(note)
    batches = iter(loader(noise, state.plan, seed=0, workers=0))
    for step in list(state.plan)[:steps]:
        update(step, next(batches))
    return gradients


@pytest.fixture
def trusted(monkeypatch):
    """No time is spent on whether fp16 computes what it should."""
    monkeypatch.setattr("vcycle.train.accelerator.conv3d_is_sound", lambda *_: True)


@pytest.mark.usefixtures("trusted")
def test_fp16_goes_on_where_it_was_cut_to_the_bit_with_its_scale(noise, tmp_path):
    whole, losses = trained(noise, tmp_path / "whole", precision="fp16")
    with pytest.raises(InterruptedError):
        trained(noise, tmp_path / "cut", precision="fp16", on_step=stopped_at(3))
    resumed, again = trained(noise, tmp_path / "cut", precision="fp16", resume=True)
    assert again == losses
    assert_same(resumed, whole)
    assert newest(tmp_path / "cut").scaler == newest(tmp_path / "whole").scaler
    _, exact = trained(noise, tmp_path / "plain")
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.02)
    with pytest.raises(CheckpointError, match=r"without a gradient scaler, this recipe trains with one \(run\.prec"):
        trained(noise, tmp_path / "plain", precision="fp16", resume=True)


@pytest.mark.usefixtures("trusted")
def test_a_scale_that_was_too_large_is_halved_and_no_step_counts_as_spoilt(noise, tmp_path, monkeypatch):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device: scaler)
    told = []
    trained(noise, tmp_path, precision="fp16", told=told)
    checkpoint = newest(tmp_path)
    assert checkpoint.scaler["scale"] < 2.0**30
    assert checkpoint.totals["skipped"] == 0
    assert told == [slowness("fp16", torch.device("cpu"))]


def test_only_fp16_on_a_cpu_is_called_slow():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert slowness("fp16", cpu).startswith("run.precision is fp16, which a CPU computes many times slower than fp32")
    assert [slowness(*which) for which in (("fp32", cpu), ("bf16", cpu), ("fp16", gpu))] == [None] * 3


def newest(folder):
    found = latest_checkpoint(RunFolder(folder).checkpoints)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_fused_optimizer_learns_the_same_to_rounding_and_either_goes_on_from_the_other(name, tmp_path):
    states = []
    for fused in (False, True):
        torch.manual_seed(0)
        model = Net().double()  # Adam blows up what rounding leaves of a gradient that should be 0, unless it is tiny
        optimizer = build_optimizer(OptimizerSection(name=name), model, fused=fused)
        for _ in range(3):
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            model(torch.randn(2, 3, 2, 4, 4).double()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        states.append(TrainState(run=RunFolder(tmp_path / name), plan=PLAN, seed=0, model=model, optimizer=optimizer))
    assert_close(states[0].model.state_dict(), states[1].model.state_dict())
    plain, fused = states
    fused.save(1)
    plain.restore(lambda _: None, RecognitionMetrics)
    assert_same(plain.model.state_dict(), fused.model.state_dict())
    assert not any(group["fused"] for group in plain.optimizer.param_groups)
    plain.save(2)
    fused.restore(lambda _: None, RecognitionMetrics)
    assert all(group["fused"] for group in fused.optimizer.param_groups)
