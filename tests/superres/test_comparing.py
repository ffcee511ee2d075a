"""Plans of super-resolution really trained and compared, on tiny clips."""

import dataclasses
import io
import json
import re
import shutil

import pytest
from rich.console import Console

from vcycle.bench.auto.propose import Wanted, propose
from vcycle.bench.steps.stepper import Run, Stepper
from vcycle.bench.steps.turns import Effort
from vcycle.bench.study import compare_plans
from vcycle.errors import CheckpointError
from vcycle.report.comparison import comparison_figure, comparison_table, statements
from vcycle.runs.experiment import Experiment
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.superres import Protocol, clip_quality, imresize
from vcycle.tasks.superres.task import SUPERRESOLUTION
from vcycle.train.callbacks import Callbacks

pytestmark = pytest.mark.usefixtures("few_turns")

QUICK = (
    *("model.options.flow=none", "training.flow=null", "training.warmup=null", "training.steps=8"),
    *("run.save_every=100", "run.validate_every=100", "evaluation.validation_clips=1"),
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
        assert arm.plan == SUPERRESOLUTION.plan(recipe, 5, arm.name)
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


def test_bicubic_is_a_line_of_the_comparison_and_plans_that_are_not_above_it_are_named(study, recipe, tmp_path):
    found, _ = study
    data = found.as_data()
    bicubic = {split: reference["value"] for split, reference in data["references"].items()}
    expected, experiment = {}, Experiment(recipe, tmp_path)
    for split in ("val", "test"):
        dataset, ratios = experiment.dataset(split), []
        for item in range(len(dataset) if split == "test" else 1):
            pair = dataset.whole(item)
            enlarged, truth = (frames.movedim(-1, -3) for frames in (imresize(pair.lr, 4), pair.hr))
            ratios.append(clip_quality(enlarged, truth, Protocol()).psnr)
        expected[split] = pytest.approx(sum(ratios) / len(ratios))
    assert bicubic == expected
    rows = io.StringIO()
    Console(file=rows, width=200).print(comparison_table(data, "tiny"))
    assert re.search(rf"bicubic +{bicubic['test']:.2f} dB", rows.getvalue())
    figure = comparison_figure(data)
    lines = [line for axis in figure.axes for line in axis.get_lines() if line.get_label() == "bicubic"]
    assert [set(line.get_ydata()) for line in lines] == [{bicubic["val"]}]

    def against(value):
        references = {"test": dataclasses.replace(found.references["test"], value=value)}
        other = dataclasses.replace(found, references=references).as_data()
        rows = io.StringIO()
        Console(file=rows, width=200).print(comparison_table(other, "tiny"))
        marked = rows.getvalue().count("†")
        assert ("†: not above bicubic" in " ".join(rows.getvalue().split())) == (marked > 0)
        return statements(other), max(0, marked - 1)

    said, marked = against(99.0)
    assert marked == len(data["arms"]) == 4
    assert re.match(
        r"no plan beat bicubic \(99\.00 dB: interpolation, .*times cannot be compared: train .*0\.03", said[0]
    )
    assert len(said) == 1
    best = data["arms"][data["plan"]]["value"]
    said, marked = against(best)
    assert marked == sum(arm["value"] <= best for arm in data["arms"].values()) < 4
    assert said[0].startswith("spatial did not beat bicubic (")
    said, marked = against(1.0)
    assert (marked, "bicubic" in "".join(said)) == (0, False)


def test_finished_runs_are_read_back_and_can_be_opened_from_their_folders(study, recipe):
    found, out = study
    started = []
    again = compare_plans(recipe, PLANS, seeds=(0, 1), out=out, on_start=lambda *start: started.append(start))
    assert again == found
    assert started == []
    for folder in (out / "runs").iterdir():
        own = load_recipe(str(folder))
        assert own.task == "superresolution"
        assert f"-seed{own.run.seed}-" in folder.name


def test_runs_that_were_tested_on_other_clips_are_tested_again_and_not_trained(study, recipe, tmp_path):
    found, out = study
    shutil.copytree(out, tmp_path / "study")
    few, other, *rest = (json.loads(line) for line in (out / "results.jsonl").read_text().splitlines())
    few["each"] = few["each"][:1]  # as a version did that tested on the clips of a validation
    few["test"], few["data"] = few["each"][0], {}
    other["data"]["test"]["names"] = "others"
    (tmp_path / "study/results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (few, other, *rest)))
    said, steps = [], []
    again = compare_plans(
        recipe, PLANS, seeds=(0, 1), out=tmp_path / "study", on_message=said.append, on_step=steps.append
    )
    assert again.runs == found.runs
    assert steps == []
    assert [line for line in said if "measured" in line] == [
        f"{few['arm']}, seed 0, was measured on 1 of the 3 test items; it is evaluated again, without training",
        f"{other['arm']}, seed 0, was measured on other test data: their names differ; it is evaluated again, without "
        "training",
    ]


def test_runs_that_were_trained_on_other_clips_are_refused_and_without_their_folder_trained_again(
    study, recipe, tmp_path
):
    _, out = study
    shutil.copytree(out, tmp_path / "study")
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    first = lines[0]
    (own,) = (tmp_path / "study/runs").glob(f"*-seed0-{first['key']}")
    record = json.loads((own / "videos.json").read_text())
    record["train"]["names"] = first["data"]["train"]["names"] = "others"
    (own / "videos.json").write_text(json.dumps(record))
    (tmp_path / "study/results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = []

    def compare():
        return compare_plans(recipe, [first["arm"]], seeds=(0,), out=tmp_path / "study", on_message=said.append)

    with pytest.raises(CheckpointError, match=r"was started with other train data .* or choose another --out$"):
        compare()
    assert not any("measured" in line for line in said)
    shutil.rmtree(own)
    compare()
    assert [line for line in said if "measured" in line] == [
        f"{first['arm']}, seed 0, was measured on other train data: their names differ; it is trained again"
    ]


def test_a_clip_that_cannot_be_read_is_left_out_and_told_once(clips, make_clip, make_training, tmp_path):
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

    def stop(*_):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        compare_plans(
            recipe,
            ["baseline", "constant@2", "spatial"],
            seeds=(0,),
            out=tmp_path,
            on_start=stop,
            on_message=said.append,
        )
    warnings = [line for line in said if line.startswith("warning: ")]
    lasts = "warning: training.flow.frozen_steps=8 covers all 8 steps of plan"
    assert [line.rpartition(":")[0] for line in warnings] == [f"{lasts} spatial", f"{lasts} control of spatial"]


def test_the_command_speaks_in_decibels(vcycle, here, clips, study):
    _, out = study
    plans = (f"plan={','.join(PLANS)}", "seeds=2")
    ran = vcycle("compare", "tiny.yaml", f"data={clips}", *QUICK, *plans, "--out", out, "--margin", 0.5, "--target", 9)
    assert ran.code == 0, ran.err
    assert "reusing 8 of 8 finished runs" in ran.err
    assert "PSNR" in ran.out
    assert "(test)" in ran.out
    assert "to 9.00" in ran.out
    assert re.search(r"no plan beat bicubic \(\d+\.\d\d dB: ", ran.out)  # eight steps are too few
    assert (out / "comparison.png").is_file()
    assert (out / "lengths.png").is_file()
    data = json.loads((out / "comparison.json").read_text())
    (ran_on,) = data["environments"]
    assert ran_on["device"] == "CPU"
    for arm in data["arms"].values():
        arm["beats_reference"] = True
    assert "; non-inferior (margin 0.5 dB): " in statements(data)[0]


def test_a_plan_is_proposed_by_what_a_pilot_restores_of_held_out_training_clips(make_training, tmp_path, monkeypatch):
    recipe = make_training(*QUICK, "training.steps=40").recipe
    monkeypatch.setattr(Stepper, "run", lambda self, shape, steps, batches=None: Run(*3 * (1e-6 * shape.voxels,)))
    wanted = Wanted(share=1.0, plans=2, effort=Effort(repeats=1, seconds=0.0))
    found = propose(recipe, tmp_path, wanted, callbacks=Callbacks())
    data = json.loads(json.dumps(found.as_data(recipe)))
    assert (data["measure"]["unit"], data["held_out"]) == ("dB", 2)
    piloted = {
        row["label"]: [reached["value"] for reached in row["pilot"]] for row in data["candidates"] if row["pilot"]
    }
    assert {len(values) for values in piloted.values()} == {1, 2}
    assert all(5 < value < 60 for values in piloted.values() for value in values)
    (chosen,) = [label for label, values in piloted.items() if len(values) == 2]
    assert data["plan"].startswith(f"{chosen}@")
    assert chosen in SUPERRESOLUTION.plans or chosen == "control:spatial"
