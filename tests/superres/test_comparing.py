"""Plans of super-resolution really trained and compared, on tiny clips."""

import io
import json
import re

import pytest
from rich.console import Console

from vcycle.bench.study import compare_plans
from vcycle.bench.subjects import subject_of
from vcycle.data import imresize
from vcycle.recipes.load import load_any
from vcycle.recipes.superres.build import dataset_of
from vcycle.recipes.superres.clips import split_of
from vcycle.recipes.superres.plans import plan_of
from vcycle.report.comparison import comparison_figure, comparison_table, statements
from vcycle.tasks.superres import Protocol, clip_quality

QUICK = (
    *("model.options.flow=none", "training.flow=null", "training.warmup=null", "training.steps=8"),
    *("run.save_every=100", "run.validate_every=100"),
)


@pytest.fixture(scope="module")
def recipe(make_training):
    return make_training(*QUICK).recipe


PLANS = ("constant@0.5", "constant", "spatial")


@pytest.fixture(scope="module")
def study(recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    return compare_plans(recipe, PLANS, seeds=(0, 1), out=out), out


def test_a_restoration_is_compared_by_psnr_on_every_test_clip(study, recipe):
    found, _ = study
    assert [arm.name for arm in found.arms] == [*PLANS, "control:spatial"]
    assert (found.measure.name, found.split) == ("PSNR", "test")
    for arm in found.arms:
        assert arm.plan == plan_of(recipe, 5, arm.name)
        for run in found.of(arm.name):
            assert (run.measure, run.steps, run.samples) == ("PSNR", len(arm.plan), arm.plan.samples)
            assert run.curve[-1][1:] == (arm.plan.samples, run.val)
            assert len(run.each) == 3
            assert run.test == pytest.approx(sum(run.each) / 3)
            assert 5 < run.test < 60
    data = json.loads(json.dumps(found.as_data()))
    assert (data["measure"]["unit"], data["plan"], data["control"]) == ("dB", "spatial", "control:spatial")
    gain = data["arms"]["spatial"]["over_control"]
    assert gain["paired"]["low"] <= gain["paired"]["difference"] <= gain["paired"]["high"]


def test_bicubic_is_a_line_of_the_comparison_and_plans_below_it_are_named(study, recipe):
    found, _ = study
    data = found.as_data()
    expected = {}
    for split in ("val", "test"):
        dataset, ratios = dataset_of(recipe, split_of(recipe, split)), []
        for item in range(len(dataset)):
            pair = dataset.whole(item)
            enlarged, truth = (frames.movedim(-1, -3) for frames in (imresize(pair.lr, 4), pair.hr))
            ratios.append(clip_quality(enlarged, truth, Protocol()).psnr)
        expected[split] = pytest.approx(sum(ratios) / len(ratios))
    assert data["bicubic"] == expected
    rows = io.StringIO()
    Console(file=rows, width=200).print(comparison_table(data, "tiny"))
    assert re.search(rf"bicubic +{data['bicubic']['test']:.2f} dB", rows.getvalue())
    figure = comparison_figure(data)
    lines = [line for axis in figure.axes for line in axis.get_lines() if line.get_label() == "bicubic"]
    assert [set(line.get_ydata()) for line in lines] == [{data["bicubic"]["val"]}, {data["bicubic"]["test"]}]

    warned = statements(data | {"bicubic": {"test": 99.0}})[0]
    assert warned.startswith("warning: every plan is below bicubic interpolation, 99.00 dB: ")
    best = max(data["arms"], key=lambda name: data["arms"][name]["value"])
    half = statements(data | {"bicubic": {"test": data["arms"][best]["value"]}})[0]
    assert half.startswith("warning: ")
    assert f"{best}," not in half.partition(" below bicubic")[0]
    assert "warning" not in "".join(statements(data | {"bicubic": {"test": 1.0}}))
    assert "warning" not in "".join(statements(data | {"bicubic": None}))


def test_finished_runs_are_read_back_and_can_be_opened_from_their_folders(study, recipe):
    found, out = study
    started = []
    again = compare_plans(recipe, PLANS, seeds=(0, 1), out=out, on_start=lambda *start: started.append(start))
    assert again == found
    assert started == []
    for folder in (out / "runs").iterdir():
        own = load_any(str(folder))
        assert own.task == "superresolution"
        assert f"-seed{own.run.seed}-" in folder.name


def test_a_clip_that_cannot_be_read_is_left_out_and_told_once(clips, make_clip, make_training, tmp_path):
    import shutil

    shutil.copytree(clips, tmp_path / "clips")
    bad = tmp_path / "clips" / "test" / "test1"
    (bad / "00000002.png").write_bytes(b"no picture")
    recipe = make_training(*QUICK, f"data={tmp_path / 'clips'}").recipe
    said = []
    found = compare_plans(recipe, ["constant@0.5"], seeds=(0, 1), out=tmp_path / "out", on_message=said.append)
    assert sum(str(bad) in line for line in said) == 1
    for run in found.runs:
        assert [value is None for value in run.each] == [False, True, False]
        assert run.test == pytest.approx((run.each[0] + run.each[2]) / 2)


def test_a_run_whose_loss_is_not_finite_is_told_of_and_does_not_end_the_study(make_training, tmp_path):
    recipe = make_training(*QUICK, "plans.spatial.stage_lrs=[1.0e+12, 1.0e+12]", "run.bad_steps=0").recipe
    ended = []
    found = compare_plans(recipe, ["spatial", "constant@0.5"], seeds=(0,), out=tmp_path, on_run=ended.append)
    assert [failure.arm for failure in found.failures] == ["spatial", "control:spatial"]
    assert all("the loss became" in failure.failed for failure in found.failures)
    assert [run.arm for run in found.runs] == ["constant@0.5"]
    assert len(ended) == 3
    assert found.as_data()["plan"] is None


def test_a_freeze_that_outlasts_one_of_the_plans_is_told(make_training, tmp_path):
    recipe, said = make_training("training.flow.frozen_steps=8").recipe, []  # steps of twice the baseline's clips
    subject = subject_of(recipe, tmp_path, lambda *_: None, said.append)
    for name in ("baseline", "spatial"):
        subject.plan(name)
    (warning,) = said
    assert warning.startswith("warning: training.flow.frozen_steps=8 lasts for all 8 steps of plan spatial: ")


def test_the_command_speaks_in_decibels(vcycle, here, clips, study):
    _, out = study
    plans = (f"plan={','.join(PLANS)}", "seeds=2")
    ran = vcycle("compare", "tiny.yaml", f"data={clips}", *QUICK, *plans, "--out", out, "--margin", 0.5, "--target", 9)
    assert ran.code == 0, ran.err
    assert "8 of 8 trainings were done before" in ran.err
    assert "PSNR (test)" in ran.out
    assert "to 9.00 dB (val)" in ran.out
    assert "; no worse by more than 0.5 dB: " in ran.out
    assert (out / "comparison.png").is_file()
    assert (out / "lengths.png").is_file()
    (ran_on,) = json.loads((out / "comparison.json").read_text())["environments"]
    assert ran_on["device"] == "CPU"
