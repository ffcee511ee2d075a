"""Trainings of a study several at a time, each in a process of its own."""

import json
import os
import signal
from dataclasses import asdict
from functools import partial
from multiprocessing import active_children

import pytest

from vcycle.bench.jobs import Jobs, most_jobs, train_at_once
from vcycle.bench.study import compare_plans
from vcycle.errors import PlanError, VcycleError
from vcycle.tasks.recipes import load_recipe
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder

pytestmark = pytest.mark.usefixtures("few_turns")

TRAINERS = """
import os, signal
from functools import partial
from vcycle.bench.runs import ArmRun
from vcycle.errors import DataError, PlanError


def train(tell, runs, arm, seed):
    tell("step", len(arm.plan) // 2)
    tell("message", f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    if seed == 7:
        raise DataError("too much of it is damaged")
    if seed == 8:
        raise PlanError("no such shape")
    if seed == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return ArmRun(**runs[arm.name, seed])


def trainer(runs, tell):
    return partial(train, tell, runs)
"""


@pytest.fixture
def at_once(tmp_path, monkeypatch, arms_of, run_of):
    """Trains two arms with seeds, of which 7, 8 and 9 fail: what becomes of each, and what was told."""
    (tmp_path / "trainers_of_test_jobs.py").write_text(TRAINERS)
    monkeypatch.syspath_prepend(tmp_path)
    import trainers_of_test_jobs as trainers

    def train(*seeds, jobs=None):
        wanted = [(arm, seed) for seed in seeds for arm in arms_of("constant", "cascade")]
        runs = {(arm.name, seed): asdict(run_of(arm, seed)) for arm, seed in wanted}
        told = {"start": [], "progress": [], "message": []}
        found = train_at_once(
            wanted,
            jobs=jobs or Jobs(number=2, threads=1),
            trainer=partial(trainers.trainer, runs),
            on_start=lambda arm, seed: told["start"].append((arm.name, seed)),
            on_progress=lambda *state: told["progress"].append(state),
            on_message=told["message"].append,
        )
        return found, told

    return train


def test_each_training_is_done_once_by_a_job_with_its_gpu_and_one_that_fails_does_not_stop_the_others(at_once, arms_of):
    found, told = at_once(0, 7, 1, jobs=Jobs(number=2, threads=1, gpus=("3", "GPU-5")))
    ended = {(run.arm, run.seed): getattr(run, "failed", None) or run.val for run in found}
    assert ended == {
        (name, seed): "too much of it is damaged" if seed == 7 else 0.8
        for name in ("constant", "cascade")
        for seed in (0, 1, 7)
    }
    assert told["start"] == [(name, seed) for seed in (0, 7, 1) for name in ("constant", "cascade")]
    assert len(told["message"]) == 6
    assert len(set(told["message"])) == 2
    assert {text.split()[1] for text in told["message"]} == {"3", "GPU-5"}
    assert active_children() == []
    _, steps, total = told["progress"][-1]
    assert total == 3 * sum(len(arm.plan) for arm in arms_of("constant", "cascade"))
    assert total / 2 < steps < total


def test_an_error_that_all_would_meet_ends_the_study(at_once):
    found, _ = at_once(8, 0)
    with pytest.raises(PlanError, match=r"^no such shape$"):
        list(found)
    assert active_children() == []


def test_a_process_that_is_killed_ends_the_study_with_what_it_trained(at_once):
    found, _ = at_once(9)
    with pytest.raises(VcycleError, match=r"^the process that trained \w+, seed 9, ended by SIGKILL; the same command"):
        list(found)
    assert active_children() == []


TINY = """
sampling: {span: [0.8, 1.0], short_side: [18, 22], flip: false}
model: {name: r3d_tiny, options: {widths: [4], blocks: [1], temporal_kernels: [3]}}
training: {batch: 4, frames: 8, size: 16, steps: 18, lr: 0.02}
run: {device: cpu, validate_every: 2, threads: 1}
data: {workers: 0}
"""


@pytest.fixture
def recipe(digit_videos, tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return load_recipe(str(file), [f"data={digit_videos}"])


def test_a_study_of_two_jobs_is_that_of_one(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("vcycle.bench.jobs.cores", lambda: 2)
    one, two = tmp_path / "one", tmp_path / "two"
    first = compare_plans(recipe, ["constant", "cascade"], seeds=(0,), out=one)
    second = compare_plans(recipe, ["constant", "cascade"], seeds=(0,), out=two, jobs=2)
    assert [arm.name for arm in second.arms] == [arm.name for arm in first.arms]

    def learned(found):
        return [(run.arm, run.seed, run.key, run.val, run.test, run.each, run.data) for run in found.runs]

    assert learned(second) == learned(first)
    assert second.environments == first.environments
    assert set(second.steps.turns) == set(first.steps.turns)
    assert compare_plans(recipe, ["constant", "cascade"], seeds=(0,), out=two) == second  # nothing is left to train


@pytest.mark.forked
def test_a_signal_reaches_every_training_and_the_study_goes_on_where_they_were(
    vcycle_beside, wait_for_steps, wait_until, recipe, tmp_path, monkeypatch
):
    monkeypatch.setattr("vcycle.bench.jobs.cores", lambda: 2)
    study = tmp_path / "study"
    long = ("training.steps=9600", "training.decay=constant", "run.validate_every=1000", "data.cache=24")
    arguments = ["compare", str(tmp_path / "tiny.yaml"), f"data={recipe.data.path}", *long, "plan=constant", "seeds=2"]
    started = vcycle_beside(*arguments, "--jobs", "2", "--out", str(study))
    wait_until(lambda: len(list(study.glob("runs/*/log.jsonl"))) == 2, started.errors.read_text)
    folders = sorted((study / "runs").iterdir())
    for folder in folders:
        wait_for_steps(started.process, folder, 3, started.errors.read_text)
    os.kill(started.process.pid, signal.SIGTERM)
    wait_until(lambda: not started.process.is_alive(), started.errors.read_text)
    said = started.errors.read_text()
    assert started.process.exitcode == 143, said
    assert "SIGTERM: the trainings finish and save their step; Ctrl-C again stops at once" in said
    assert "interrupted by SIGTERM; the same command resumes it" in said
    for folder in folders:
        steps = [json.loads(line)["step"] for line in RunFolder(folder).log.read_text().splitlines()]
        checkpoint = latest_checkpoint(RunFolder(folder).checkpoints)
        assert checkpoint is not None
        assert checkpoint[0].step == steps[-1] + 1 >= 3


def test_jobs_share_the_cores_and_take_the_gpus_in_turn(recipe, monkeypatch):
    monkeypatch.setattr("vcycle.bench.jobs.cores", lambda: 8)
    assert Jobs.of(3, recipe) == Jobs(number=3, threads=2)
    assert Jobs.of(3, recipe).own(recipe) == recipe  # which sets its threads
    own = recipe.model_copy(update={"run": recipe.run.model_copy(update={"threads": "auto", "device": "auto"})})
    assert Jobs(number=3, threads=2).own(own).run.threads == 2
    assert Jobs(number=1, threads=8).own(own).run.threads == "auto"
    with pytest.raises(VcycleError, match=r"^9 trainings at a time: this process has 8 cores, and each needs one$"):
        Jobs.of(9, recipe)
    assert [most_jobs(recipe, trainings) for trainings in (1, 3, 12)] == [1, 3, 4]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert Jobs.of(2, recipe).gpus == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert Jobs.of(2, own).gpus == ("0", "1")
    assert most_jobs(own, 12) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,GPU-7")
    assert Jobs.of(4, own).gpus == ("6", "GPU-7")
