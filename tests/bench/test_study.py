"""Plans really trained and compared, on tiny videos."""

import json
import os
import shutil
import signal

import pytest

from vcycle.bench.steps.stepper import Stepper
from vcycle.bench.study import arm_names, compare_plans
from vcycle.errors import DataError, PlanError, RecipeError, VcycleError
from vcycle.plan import Plan
from vcycle.report.comparison import clock_of
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.task import RECOGNITION
from vcycle.train import clock, stopping
from vcycle.train.environment import machine
from vcycle.train.lock import training_lock

pytestmark = pytest.mark.usefixtures("few_turns")

TEXT = """
sampling: {span: [0.8, 1.0], short_side: [18, 22], flip: false}
model: {name: r3d_tiny, options: {widths: [4], blocks: [1], temporal_kernels: [3]}}
training: {batch: 4, frames: 8, size: 16, steps: 18, lr: 0.02}
run: {device: cpu, validate_every: 2}
data: {workers: 0}
"""


@pytest.mark.parametrize(
    ("plans", "arms"),
    [
        (["constant", "cascade"], ["constant", "cascade", "control:cascade"]),
        (
            ["long+short", "cascade@0.5", "cascade"],
            ["long+short", "cascade@0.5", "cascade", "control:long+short", "control:cascade"],
        ),
        (["constant", "cascade", "long", "control:cascade"], ["constant", "cascade", "long", "control:cascade"]),
        (["constant@2", "baseline"], ["constant@2", "baseline"]),
        (["spatial", "spatial+scaled@2"], ["spatial", "spatial+scaled@2", "control:spatial"]),
        (["cascade", "cascade"], ["cascade", "control:cascade"]),
    ],
)
def test_each_plan_comes_with_its_control_unless_controls_are_named(plans, arms):
    assert arm_names(plans) == arms


@pytest.fixture(scope="module")
def load(digit_videos, tmp_path_factory):
    file = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    file.write_text(TEXT)
    return lambda *overrides: load_recipe(str(file), [f"data={digit_videos}", *overrides])


@pytest.fixture(scope="module")
def study(load, tmp_path_factory):
    """A study whose wall clock is an hour late at every step of the constant shape, as if other programs ran."""
    out = tmp_path_factory.mktemp("study")
    started, late = [], [0.0]
    now = clock._now

    def count(_):
        late[0] += 3600.0 * (started[-1][0] == "constant")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "_now", lambda: (now()[0] + late[0], now()[1]))
        found = compare_plans(
            load(),
            ["constant", "cascade"],
            seeds=(0, 1),
            out=out,
            on_start=lambda arm, seed: started.append((arm.name, seed)),
            on_step=count,
        )
    return found, out, started


def test_arms_share_their_seeds_and_are_trained_whole(study, load):
    found, _, started = study
    names = ["constant", "cascade", "control:cascade"]
    assert started == [(name, seed) for seed in (0, 1) for name in names]
    assert [arm.name for arm in found.arms] == names
    for arm in found.arms:
        assert arm.plan == RECOGNITION.plan(load(), 24, arm.name)
        for run in found.of(arm.name):
            assert (run.steps, run.samples, run.work) == (len(arm.plan), arm.plan.samples, arm.plan.work())
            assert run.curve[-1][1:] == (arm.plan.samples, run.val)
            assert 0 <= run.data_seconds <= run.seconds
            assert set(run.each) <= {0, 1}
            assert run.test == pytest.approx(sum(run.each) / len(run.each))
    json.dumps(found.as_data())


def test_a_wall_clock_that_other_programs_moved_changes_no_ratio_and_is_said_to_disagree(study):
    found, _, _ = study
    data = found.as_data()
    gain = data["arms"]["cascade"]["over_constant"]
    plans = {arm.name: arm.plan for arm in found.arms}
    assert set(found.steps.turns) == {shape for plan in plans.values() for shape in plan.shapes}
    assert gain["speedup"] == found.steps.of(plans["constant"]) / found.steps.of(plans["cascade"])
    assert gain["speedup_low"] <= gain["speedup"] <= gain["speedup_high"] < 1000 < gain["wall_speedup"]
    assert gain["clocks_disagree"] is True
    # The constant shape and the control take the same steps, whatever the wall clock says.
    assert data["arms"]["control:cascade"]["over_constant"]["speedup"] == 1.0
    assert data["arms"]["constant"]["wall_seconds"] > 1000 * data["arms"]["constant"]["train_seconds"]


def test_a_finished_study_keeps_the_times_of_its_machine(study, load, monkeypatch):
    found, out, _ = study
    file = out / "steps.json"
    text = file.read_text()
    said = []
    monkeypatch.setattr("vcycle.bench.study.time_steps", lambda *_, **__: pytest.fail("timed again"))
    try:
        file.write_text(json.dumps(json.loads(text) | {"machine": {"processor": "another", "cores": 96}}))
        again = compare_plans(load(), ["constant", "cascade"], seeds=(0, 1), out=out, on_message=said.append)
        assert again == found
        assert (
            f"speed-ups are by steps timed on another machine (processor {machine()['processor']} → another" in said[-1]
        )
        assert clock_of(again.as_data()) == "by steps timed in turns on CPU (another, 96 cores)"
        assert clock_of(found.as_data()) == "by steps timed in turns"
    finally:
        file.write_text(text)


@pytest.mark.parametrize("why", ["elsewhere", "unknown", "memory", "loading"])
def test_a_finished_study_whose_steps_cannot_be_timed_is_compared_by_its_wall_clock(
    study, load, monkeypatch, tmp_path, why
):
    """Elsewhere, as a folder copied from another machine, without the times of its steps; or timing them fails."""
    found, out, _ = study
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    (tmp_path / "steps.json").unlink()
    environments = tmp_path / "environments.json"
    reason = f"the trainings ran on another machine (device NVIDIA H200 → CPU, cores 96 → {machine()['cores']})"
    if why == "elsewhere":
        (known,) = json.loads(environments.read_text())
        environments.write_text(json.dumps([known | {"device": "NVIDIA H200", "cores": 96}]))
    elif why == "unknown":
        environments.unlink()
        reason = "environments.json does not tell on which machine the trainings ran"
    else:
        error, reason = {
            "memory": (RuntimeError("std::bad_alloc"), "out of memory at "),
            "loading": (DataError("videos/a.mp4 is gone"), "videos/a.mp4 is gone"),
        }[why]

        def fail(stepper, shape, steps, batches=None):
            if batches is not None:  # the first batch from the loader
                raise error
            return run(stepper, shape, steps)

        run = Stepper.run
        monkeypatch.setattr(Stepper, "run", fail)
    if why in ("elsewhere", "unknown"):
        monkeypatch.setattr("vcycle.bench.study.time_steps", lambda *_, **__: pytest.fail("timed here"))
    said = []
    again = compare_plans(load(), ["constant", "cascade"], seeds=(0, 1), out=tmp_path, on_message=said.append)
    assert said[-1].startswith(f"steps cannot be timed: {reason}")
    assert said[-1].endswith("; speed-ups are by the wall clock of the trainings")
    assert not (tmp_path / "steps.json").exists()  # the next call tries again
    data = again.as_data()
    assert data["clock"]["clock"] == "wall clock of the trainings"
    assert data["clock"]["reason"].startswith(reason)
    gain = data["arms"]["cascade"]["over_constant"]
    assert (
        gain["speedup"] == gain["wall_speedup"] == found.as_data()["arms"]["cascade"]["over_constant"]["wall_speedup"]
    )
    assert 1 < gain["speedup_low"] < gain["speedup"] < gain["speedup_high"]
    assert gain["clocks_disagree"] is False
    for row in data["runs"]:
        assert row["curve_seconds"] == [seconds for seconds, *_ in row["curve"]]
    assert clock_of(data) == "by the wall clock of the trainings"


def test_a_run_of_a_study_can_be_evaluated_from_its_folder(study):
    _, out, _ = study
    folders = sorted((out / "runs").iterdir())
    assert len(folders) == 6
    for folder in folders:
        recipe = load_recipe(str(folder))
        plan = Plan.from_json((folder / "plan.json").read_text())
        assert RECOGNITION.plan(recipe, 24) == plan
        assert f"-seed{recipe.run.seed}-" in folder.name
        assert folder.name.startswith(recipe.plan.replace(":", "_"))


def test_finished_runs_are_read_back_and_only_new_ones_trained(study, load):
    found, out, _ = study
    started = []

    def again(*overrides, plans=("constant", "cascade"), seeds=(0, 1)):
        started.clear()
        return compare_plans(
            load(*overrides), plans, seeds=seeds, out=out, on_start=lambda arm, seed: started.append((arm.name, seed))
        )

    assert again() == found
    assert started == []
    # What does not change the run does not train it again.
    again("description=other words", "plan=short", "plans.short.epoch_factor=2")
    assert started == []
    # A plan of another length is another plan, of which the control is the same; a changed recipe changes all.
    again("plans.cascade.epoch_factor=1.5", seeds=(0,))
    assert started == [("cascade", 0)]
    again("training.label_smoothing=0.1", plans=["constant"], seeds=(0,))
    assert started == [("constant", 0)]


def test_a_study_that_was_interrupted_goes_on_with_the_step_after(study, load, tmp_path):
    found, _, _ = study

    def stop(report):
        if report.step.index == 9:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), stopping.signals():
        compare_plans(load(), ["constant"], seeds=(0,), out=tmp_path, on_step=stop)
    said, steps = [], []
    again = compare_plans(
        load(),
        ["constant"],
        seeds=(0,),
        out=tmp_path,
        on_step=lambda report: steps.append(report.step.index),
        on_message=said.append,
    )
    assert steps == list(range(10, 18))
    assert any(line.startswith("resuming at step 10 of 18") for line in said)
    (run,) = again.runs
    assert (run.val, run.test) == (found.of("constant")[0].val, found.of("constant")[0].test)


def test_two_studies_are_not_at_work_in_one_folder(load, held_elsewhere, tmp_path):
    holder, _ = held_elsewhere(lambda: training_lock(tmp_path))
    with pytest.raises(VcycleError, match=f"process {holder.pid} on .* is training in"):
        compare_plans(load(), ["constant"], seeds=(0,), out=tmp_path)


def test_what_cannot_be_trained_is_refused_before_anything_is(load, tmp_path):
    with pytest.raises(RecipeError, match="plan 'cascad' is unknown"):
        compare_plans(load(), ["constant", "cascad"], seeds=(0,), out=tmp_path / "a")
    with pytest.raises(PlanError, match="cannot take the shape"):
        compare_plans(
            load("model={name: slowfast_tiny}", "training.frames=4"),
            ["constant", "cascade"],
            seeds=(0,),
            out=tmp_path / "b",
        )
    assert not list(tmp_path.iterdir())


def test_the_embedded_set_is_made_beside_the_runs_and_found_again(load, tmp_path):
    digits = "{digits: [2], motions: [left, up], clips: {train: 4, val: 2}, frames: 12, size: 24, digit_size: 12}"
    recipe = load(f"data.digits={digits}", "data.path=null", "training.steps=4", "run.validate_every=9")
    found = compare_plans(recipe, ["constant"], seeds=(0,), out=tmp_path)
    assert found.split == "val"
    assert (tmp_path / "digits" / "train").is_dir()
    (folder,) = (tmp_path / "runs").iterdir()
    assert load_recipe(str(folder)).data.path == str(tmp_path / "digits")


def test_a_bad_video_is_named_once_for_all_seeds(digit_videos, load, tmp_path):
    videos = shutil.copytree(digit_videos, tmp_path / "set")
    video = next((videos / "train").glob("*/*.mp4"))
    data = bytearray(video.read_bytes())
    start = data.index(b"mdat") + 4
    data[start : data.index(b"moov") - 4] = bytes(data.index(b"moov") - 4 - start)  # it opens, and nothing decodes
    video.write_bytes(data)
    said = []
    recipe = load(f"data={videos}", "run.bad_limit=1")
    compare_plans(recipe, ["constant"], seeds=(0, 1), out=tmp_path / "out", on_message=said.append)
    assert len([text for text in said if text.startswith("bad video")]) == 1
