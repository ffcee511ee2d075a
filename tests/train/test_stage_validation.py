"""Validation at the shape of the stage just trained: a coarse stage that learns can be told from one that does not."""

import pytest

from vcycle.console.messages import plan_line
from vcycle.train.outcome import StepReport
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines


def validations(folder):
    return [line for line in JsonLines(RunFolder(folder).log).read() if line["event"] == "validation"]


BRIEF = ["data.cache=24", "plan=cascade", "training.steps=16", "training.decay=constant", "training.warmup=null"]


def test_each_validation_has_its_stage_s_own_shape_too(make_training, record_of, tmp_path):
    training = make_training(*BRIEF, "run.validate_every=0.5", "run.validate_stage_shape=true")
    result = training.run(tmp_path / "run")
    full = training.plan.baseline_shape
    coarse = [point for point in result.curve if point.stage is not None]
    assert coarse
    for point, line in zip(result.curve, validations(tmp_path / "run"), strict=True):
        base = training.plan.stages[training.plan[point.step - 1].stage].base
        if base.shape == full.shape:
            assert point.stage is None
            assert "val_stage" not in line
        else:
            assert point.stage_shape == f"{base.frames}×{base.size}²" == line["val_stage_shape"]
            assert f"{base.frames}×{base.size}×{base.size}" in point.stage.protocol
            assert line["val_stage"]["top1"] == point.stage.top1
            said = plan_line(training.plan, point)
            assert said.endswith(f"on validation ({point.stage.headline} at its own {point.stage_shape})")
    assert result.curve[-1].stage is None
    training.run_until(coarse[0].step, tmp_path / "cut")
    training.run(tmp_path / "cut", resume=True)
    assert record_of(tmp_path / "cut") == record_of(tmp_path / "run")


def test_it_changes_nothing_that_is_learned_and_is_off_by_default(make_training, newest, tmp_path):
    import torch

    plain = make_training(*BRIEF, "run.validate_every=0.5")
    assert all(point.stage is None for point in plain.run(tmp_path / "plain").curve)
    make_training(*BRIEF, "run.validate_every=0.5", "run.validate_stage_shape=true").run(tmp_path / "both")
    weights = [newest(tmp_path / name).model for name in ("plain", "both")]
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())


def test_a_step_reports_the_newest_loss(training, tmp_path):
    reports: list[StepReport] = []
    training.run(tmp_path, on_step=reports.append)
    logged = [line["loss"] for line in JsonLines(RunFolder(tmp_path).log).read() if line["event"] == "step"]
    assert [report.loss for report in reports] == pytest.approx(logged, abs=0)
