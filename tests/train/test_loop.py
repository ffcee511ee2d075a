import errno
import math
import os
import shutil
import sys
import time

import pytest
import torch
from torch import nn

from vcycle.data.config import LoadingSection
from vcycle.errors import CheckpointError, VcycleError
from vcycle.plan import Baseline, StepDecay, constant, multigrid
from vcycle.tasks.recognition import RecognitionMetrics
from vcycle.train.accelerator import make_accelerator
from vcycle.train.callbacks import Callbacks
from vcycle.train.clock import Clock
from vcycle.train.config import OptimizerSection, RunSection, TrainConfig
from vcycle.train.optimizer import build_optimizer
from vcycle.train.outcome import Totals, ValidationResult
from vcycle.train.run import RunFolder
from vcycle.train.trainer import fit
from vcycle.utils.jsonl import JsonLines


class Loss:
    """Mean cross-entropy, or a value that is given for a step."""

    def __init__(self, **instead):
        self.instead = {int(step.removeprefix("at_")): value for step, value in instead.items()}
        self.step = -1
        self.seen = []

    mixes = False

    def loss(self, model, clips, labels, *, block=None):
        self.step += 1
        self.seen.append((clips, labels))
        loss = nn.functional.cross_entropy(model(clips.float().div(255).permute(0, 4, 1, 2, 3)), labels)
        return loss * self.instead[self.step] if self.step in self.instead else loss

    def check(self, labels):
        pass

    def predict(self, model, clips):
        return model(clips.float().div(255).permute(0, 4, 1, 2, 3))


BASELINE = Baseline(
    batch=2, frames=8, size=16, clips=24, steps=60, lr=0.02, decay=StepDecay(milestones=(30, 45)), bn_batch=2
)
PLAN = multigrid(BASELINE)


@pytest.fixture
def fit_noise(noise, brightness, tmp_path):
    """Trains the smallest model on noise."""

    def fit_noise(plan=PLAN, task=None, *, folder=tmp_path, settings=None, workers=0, **more):
        callbacks = Callbacks(**{key: more.pop(key) for key in ("on_step", "on_message") if key in more})
        torch.manual_seed(0)
        return fit(
            plan=plan,
            model=brightness(),
            dataset=noise,
            objective=task or Loss(),
            config=TrainConfig(
                run=RunSection(device="cpu", **(settings or {})),
                loading=LoadingSection(workers=workers),
            ),
            run=RunFolder(folder),
            callbacks=callbacks,
            **more,
        )

    return fit_noise


def lines_of(folder, event):
    return [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == event]


def test_every_step_is_trained_at_its_shape_and_rate_and_logged(fit_noise, tmp_path):
    task = Loss()
    reports = []
    fitted = fit_noise(task=task, on_step=reports.append)
    assert [tuple(clips.shape) for clips, _ in task.seen] == [(s.batch, *s.shape, 3) for s in PLAN]
    assert [report.step for report in reports] == list(PLAN)
    assert sum(report.work for report in reports) == pytest.approx(PLAN.work())
    lines = lines_of(tmp_path, "step")
    assert [line["step"] for line in lines] == list(range(len(PLAN)))
    for line, step in zip(lines, PLAN, strict=True):
        assert (line["lr"], line["batch"], line["bn_batch"], line["stage"], line["first_sample"]) == (
            step.lr,
            step.batch,
            step.bn_batch,
            step.stage,
            step.first_sample,
        )
        assert (line["frames"], line["size"]) == (step.shape.frames, step.shape.size)
        assert math.isfinite(line["loss"])
        assert 0 <= line["data_seconds"] <= line["seconds"]
        assert line["memory_mib"] > 0
    assert (fitted.steps, fitted.samples, fitted.replaced) == (len(PLAN), PLAN.samples, 0)
    assert fitted.data_seconds <= fitted.seconds
    assert RunFolder(tmp_path).plan.exists()


def test_the_update_is_that_of_plain_pytorch(noise, brightness, fit_noise):
    """SGD with the plan's rates, written out: what the loop does beyond that must not change the result."""
    from vcycle.data import loader
    from vcycle.nn import apply, convert_batchnorm, one_step

    trained = fit_noise().model
    torch.manual_seed(0)
    model = convert_batchnorm(brightness()).to(memory_format=torch.channels_last_3d)
    optimizer = build_optimizer(OptimizerSection(), model)
    task = Loss()
    for step, batch in zip(PLAN, loader(noise, PLAN), strict=True):
        apply(step, model, optimizer)
        optimizer.zero_grad()
        with one_step(model):
            task.loss(model, batch.clips, batch.labels).backward()
        optimizer.step()
    assert all(
        torch.equal(a, b) for a, b in zip(trained.state_dict().values(), model.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("workers", [1, 4])
def test_weights_do_not_depend_on_the_number_of_workers(fit_noise, tmp_path, workers):
    few = constant(BASELINE, epoch_factor=0.1)
    alone = fit_noise(few, folder=tmp_path / "alone").model
    shared = fit_noise(few, folder=tmp_path / "shared", workers=workers).model
    assert all(
        torch.equal(a, b) for a, b in zip(alone.state_dict().values(), shared.state_dict().values(), strict=True)
    )


def test_another_seed_is_another_run(fit_noise, tmp_path):
    fit_noise(folder=tmp_path / "0")
    fit_noise(folder=tmp_path / "1", settings={"seed": 1})
    ids = [[line["ids_crc32"] for line in lines_of(tmp_path / name, "step")] for name in ("0", "1")]
    assert all(one != other for one, other in zip(*ids, strict=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_a_run_that_may_skip_none_and_names_the_step(fit_noise, tmp_path, value):
    step = PLAN[13]
    with pytest.raises(VcycleError) as caught:
        fit_noise(task=Loss(at_13=value), settings={"save_every": 5, "bad_steps": 0})
    assert str(caught.value) == (
        f"the loss became {value} at step 13 (LR {step.lr:g}, {step.batch} clips of "
        f"{step.shape.frames}×{step.shape.size}²): lower training.lr or lengthen training.warmup; the samples of each "
        f"such step are in {tmp_path}/log.jsonl"
    )
    last = lines_of(tmp_path, "step")[-1]
    assert (last["step"], last["loss"]) == (13, str(value))
    # Nothing that came after is in a checkpoint.
    assert sorted(file.name for file in (tmp_path / "checkpoints").iterdir()) == [
        "step-000000005.pt",
        "step-000000010.pt",
    ]


def test_a_second_run_in_the_same_folder_is_refused_and_harms_nothing(fit_noise, tmp_path):
    fit_noise()
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(VcycleError, match=r"already holds a run: `vcycle train .* --resume` resumes it"):
        fit_noise()
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_to_resume_what_never_began_is_to_begin(fit_noise, tmp_path):
    said = []
    fitted = fit_noise(folder=tmp_path / "new", resume=True, on_message=said.append)
    assert said == [f"nothing to resume in {tmp_path / 'new'}: starting from the beginning"]
    assert fitted.steps == len(PLAN)


def test_a_run_without_its_checkpoints_cannot_go_on(fit_noise, tmp_path):
    fit_noise()
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="has lost its checkpoints: choose another --out"):
        fit_noise(resume=True)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_shows_before_anything_is_trained(fit_noise, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    task = Loss()
    with pytest.raises(VcycleError, match=r"plan\.json cannot be written: No space left on device"):
        fit_noise(task=task)
    assert task.seen == []


def test_a_disk_that_fills_up_loses_no_more_than_the_steps_since_the_last_checkpoint(
    fit_noise, record_of, tmp_path, monkeypatch
):
    def fill(report):
        if report.step.index == 9:
            monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(
        CheckpointError, match=r"step-000000010.pt cannot be saved .*the last one is .*step-000000005.pt"
    ):
        fit_noise(folder=tmp_path / "run", settings={"save_every": 5}, on_step=fill)
    monkeypatch.undo()
    fit_noise(folder=tmp_path / "run", settings={"save_every": 5}, resume=True)
    fit_noise(folder=tmp_path / "whole")
    assert record_of(tmp_path / "run") == record_of(tmp_path / "whole")


def found(value):
    return RecognitionMetrics(top1=value, top5=1.0, loss=0.5, samples=8, unreadable=0, protocol="none")


def test_validation_comes_every_so_many_epochs_and_at_the_end(fit_noise, tmp_path):
    asked = []

    def validate(model, device):
        asked.append(model.training)
        return found(len(asked) / 100)

    fitted = fit_noise(validate=validate, settings={"validate_every": 2.0})
    epochs = [point.samples / 24 for point in fitted.curve]
    assert fitted.curve[-1].step == len(PLAN)
    for number, epoch in enumerate(epochs[:-1], 1):
        assert PLAN.epochs_before(fitted.curve[number - 1].step - 1) < 2 * number <= epoch
    assert len(epochs) == math.floor(PLAN.epochs / 2) + (PLAN.epochs % 2 >= 1)
    assert [point.evaluation.top1 for point in fitted.curve] == [n / 100 for n in range(1, len(asked) + 1)]
    assert [point.seconds for point in fitted.curve] == sorted(point.seconds for point in fitted.curve)
    logged = lines_of(tmp_path, "validation")
    assert [(line["step"] + 1, line["samples"], line["seconds"]) for line in logged] == [
        (point.step, point.samples, point.seconds) for point in fitted.curve
    ]


def test_no_validation_comes_shortly_before_the_last(fit_noise):
    every = 3.5
    assert 2 * every < PLAN.epochs < 2.5 * every
    fitted = fit_noise(validate=lambda model, device: found(0.5), settings={"validate_every": every})
    assert [math.floor(point.samples / 24 / every) for point in fitted.curve] == [1, 2]
    assert fitted.curve[-1].step == len(PLAN)


def test_validation_does_not_count_as_training_time(fit_noise):
    def validate(model, device):
        time.sleep(0.1)
        return found(0.5)

    few = constant(BASELINE, epoch_factor=0.1)
    began = time.perf_counter()
    fitted = fit_noise(few, validate=validate, settings={"validate_every": 0.1})
    took = time.perf_counter() - began
    assert len(fitted.curve) >= 3
    assert fitted.seconds <= took - 0.1 * len(fitted.curve)


def test_the_clock_stands_still_while_paused():
    totals = Totals(seconds=10.0, cpu_seconds=5.0)
    began, cpu_began = time.perf_counter(), time.process_time()
    clock = Clock(totals)
    time.sleep(0.02)
    with clock.paused():
        time.sleep(0.1)
    lap = clock.lap()
    took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
    assert lap <= took - 0.1
    assert 10.02 <= totals.seconds <= 10 + took - 0.1
    assert 5.0 < totals.cpu_seconds <= 5 + cpu_took


def test_totals_survive_a_checkpoint():
    point = ValidationResult(step=3, samples=12, seconds=0.5, evaluation=found(0.25))
    totals = Totals(seen=12, replaced=1, seconds=1.5, cpu_seconds=1.25, data_seconds=0.5, curve=[point])
    assert Totals.from_data(totals.as_data(), RecognitionMetrics) == totals


def test_tensorboard_files_are_written_where_they_are_asked_for(fit_noise, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit_noise(settings={"loggers": ["tensorboard"]}, validate=lambda *_: found(0.5))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= {"loss", "lr", "batch", "val_top1"}
    assert [event.step for event in events.Scalars("lr")] == list(range(len(PLAN)))
    assert [event.value for event in events.Scalars("lr")] == pytest.approx([step.lr for step in PLAN])


def test_without_tensorboard_the_error_says_what_to_install(fit_noise, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(VcycleError, match=r"run.loggers=\[tensorboard\] needs tensorboard, which is not"):
        fit_noise(settings={"loggers": ["tensorboard"]})


def test_no_tensorboard_files_are_written_otherwise(fit_noise, tmp_path):
    fit_noise()
    assert not (tmp_path / "tensorboard").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named():
    said = r"run\.device is cuda, but torch finds no CUDA device: set run\.device to cpu or auto"
    with pytest.raises(VcycleError, match=said):
        make_accelerator(RunSection(device="cuda"))
    assert make_accelerator(RunSection(device="auto")).device.type == "cpu"


def test_bf16_is_refused_where_it_computes_garbage(monkeypatch):
    from vcycle.train import accelerator

    monkeypatch.setattr(accelerator, "conv3d_is_sound", lambda device, dtype: False)
    with pytest.raises(VcycleError, match=r"run.precision is bf16.*: set run\.precision=fp32$"):
        make_accelerator(RunSection(device="cpu", precision="bf16"))
    monkeypatch.setattr(accelerator, "conv3d_is_sound", lambda device, dtype: True)
    assert make_accelerator(RunSection(device="cpu", precision="bf16")) is not None
