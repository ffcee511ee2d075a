"""What a step takes at every batch shape, and what plans are predicted to take."""

import json

import pytest
import torch
from torch import nn

from vcycle.bench.steps import study
from vcycle.bench.steps.ceiling import peak_flops
from vcycle.bench.steps.loading import batch_seconds
from vcycle.bench.steps.stepper import Parts, Run
from vcycle.bench.steps.study import Effort, bench_steps
from vcycle.bench.steps.work import step_flops
from vcycle.cli.app import app
from vcycle.data import Sample
from vcycle.errors import PlanError, VcycleError
from vcycle.plan import Baseline, constant
from vcycle.recipes.load import load_recipe
from vcycle.recipes.plans import plan_of
from vcycle.report.steps import plans_table, shapes_table, steps_figure, steps_notes

QUICK = Effort(repeats=2, seconds=0.0)


@pytest.fixture
def recipe():
    return load_recipe("demo/digits", ["training.size=16", "training.frames=4", "training.batch=4"])


@pytest.fixture
def plans(recipe):
    return {name: plan_of(recipe, 1200, name) for name in ("constant", "long+short", "cascade")}


class Steady:
    """Steps whose time is known: a millisecond for every thousand voxels, and one more each."""

    device = torch.device("cpu")
    precision = "fp32"

    def __init__(self, *_):
        pass

    def run(self, shape, steps):
        seconds = 1e-3 * (1 + shape.voxels / 1000)
        return Run(seconds, seconds, None)

    def parts(self, shape):
        return Parts(1e-3, 2e-3, 1e-4)


def test_the_work_of_a_step_is_counted_forward_and_backward():
    def build():
        return nn.Sequential(nn.Conv3d(3, 8, 3, padding=1, bias=False), nn.Flatten(1))

    shape = constant(Baseline(batch=2, frames=4, size=16, clips=8, epochs=1, lr=0.1)).baseline_shape
    forward = 2 * 2 * 4 * 16 * 16 * 8 * 3 * 27
    # The first layer's input needs no gradient: forward, and the gradient of the weights.
    assert step_flops(build, shape) == 2 * forward


def test_the_fastest_arithmetic_is_measured():
    assert 1e8 < peak_flops(torch.device("cpu"), "fp32") < 1e15


def test_plans_are_put_together_from_their_steps(recipe, plans, monkeypatch):
    monkeypatch.setattr(study, "Stepper", Steady)
    done = []
    found = bench_steps(recipe, plans, classes=12, effort=QUICK, progress=lambda *count: done.append(count))
    expected = {
        name: sum(1e-3 * (1 + step.batch * step.shape.voxels / 1000) for step in plan) for name, plan in plans.items()
    }
    for row in found["plans"]:
        name = row["plan"]
        assert row["steps"] == len(plans[name])
        assert row["seconds"]["median"] == pytest.approx(expected[name])
        assert row["speedup"]["median"] == pytest.approx(expected["constant"] / expected[name])
    shapes = {shape for plan in plans.values() for shape in plan.shapes}
    assert len(found["shapes"]) == len(shapes | {plans["constant"].baseline_shape})
    assert found["shapes"][0]["realised"]["median"] == 1
    assert [row["data_ms"] for row in found["shapes"]] == [None] * len(found["shapes"])
    assert done[-1][0] == done[-1][1]


def test_a_frozen_backbone_has_no_gradients_to_compute(recipe, plans, monkeypatch):
    monkeypatch.setattr(study, "Stepper", Steady)
    only = {"constant": plans["constant"]}
    frozen = load_recipe("demo/digits", ["training.size=16", "training.frames=4", "training.freeze=backbone"])
    whole, part = (bench_steps(each, only, classes=12, effort=QUICK)["shapes"][0] for each in (recipe, frozen))
    assert 0.3 < part["gflop"] / whole["gflop"] < 0.4  # forward alone


def test_a_step_that_loads_for_longer_than_it_computes_takes_what_loading_takes(recipe, plans, monkeypatch):
    monkeypatch.setattr(study, "Stepper", Steady)
    found = bench_steps(recipe, plans, classes=12, effort=QUICK, data_seconds=lambda shape: 0.5)
    assert {row["bound_by"] for row in found["shapes"]} == {"data"}
    for row in found["plans"]:
        assert row["seconds"]["median"] == pytest.approx(0.5 * len(plans[row["plan"]]))


def test_a_shape_that_does_not_fit_is_named_with_the_remedy(recipe, plans, monkeypatch):
    class Full(Steady):
        def run(self, shape, steps):
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(study, "Stepper", Full)
    with pytest.raises(VcycleError, match=r"×16² does not fit into memory here: training\.batch=N makes"):
        bench_steps(recipe, plans, classes=12, effort=QUICK)


def test_loading_is_measured_from_one_batch_to_the_next(monkeypatch):
    class Slow:
        samples_grids = True

        def __len__(self):
            return 8

        def __getitem__(self, request):
            torch.zeros(1)
            clip = torch.zeros((*request.shape, 3), dtype=torch.uint8)
            return Sample(clip=clip, label=0, index=request.index, position=request.position)

    shape = constant(Baseline(batch=2, frames=2, size=8, clips=8, epochs=1, lr=0.1)).baseline_shape
    assert batch_seconds(Slow(), shape, workers=0, timeout=10, prefetch=None) > 0


SMALL = ["training.size=16", "training.frames=4", "training.batch=4", "plans.long+short.cycles=1"]


def test_the_command_times_real_steps_and_shows_them(capsys, tmp_path):
    arguments = ["bench", "step", "demo/digits", *SMALL, "--repeats", "2", "--seconds", "0"]
    app([*arguments, "--figure", str(tmp_path / "steps.png"), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (tmp_path / "steps.png").stat().st_size > 10_000
    names = [row["plan"] for row in found["plans"]]
    assert names[0] == "constant"
    assert {"long+short", "cascade"} <= set(names)
    for row in found["shapes"]:
        assert row["step_ms"]["low"] <= row["step_ms"]["median"] <= row["step_ms"]["high"]
        assert min(row["parts_ms"].values()) > 0
        assert row["memory_mib"] is None
    from rich.console import Console

    console = Console(width=200, record=True)
    console.print(shapes_table(found), plans_table(found), *steps_notes(found))
    shown = console.export_text()
    for words in ("4×4×16²", "realised / work", "faster than constant", "GFLOP/s", "long+short"):
        assert words in shown
    assert len(steps_figure(found, "x").axes) == 2


def test_a_plan_that_cannot_be_is_left_out_unless_it_was_asked_for(capsys):
    recipe = ["bench", "step", "demo/digits", *SMALL, "model=slowfast_tiny", "--repeats", "1", "--seconds", "0"]
    app([*recipe, "plan=cascade", "--json"], standalone_mode=False)
    told = capsys.readouterr()
    assert "left out: plan 'long+short'" in told.err
    assert [row["plan"] for row in json.loads(told.out)["plans"]] == ["constant", "short", "cascade"]
    with pytest.raises(PlanError, match="cannot take the shape"):
        app([*recipe, "--plans", "long+short"], standalone_mode=False)
