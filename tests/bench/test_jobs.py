"""Trainings of a study several at a time, each in a process of its own."""

import json
import os
import signal
from dataclasses import asdict
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import pytest

from vcycle.bench.jobs import Jobs, most_jobs, train_at_once
from vcycle.bench.study import compare_plans
from vcycle.errors import RecipeError, VcycleError
from vcycle.tasks.recipes import load_recipe
from vcycle.train.checkpoint import latest_checkpoint
from vcycle.train.run import RunFolder

pytestmark = pytest.mark.usefixtures("few_turns")

TRAINERS = """
import os, signal
from functools import partial
from vcycle.bench.runs import ArmRun
from vcycle.errors import DataError


def train(tell, runs, arm, seed):
    tell("work", arm.plan.work() / 2)
    tell("message", f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    if seed == 7:
        raise DataError("too much of it is damaged")
    if seed == 9:
        os.kill(os.getpid(), signal.SIGKILL if arm.name == "constant" else signal.SIGTERM)
    if seed == 10:
        {}["no such key"]
    return ArmRun(**runs[arm.name, seed])


def trainer(runs, tell):
    return partial(train, tell, runs)
"""


@pytest.fixture
def at_once(tmp_path, monkeypatch, arms_of, run_of):
    """Trains two arms with seeds, of which 7, 9 and 10 fail: what becomes of each, and what was told."""
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
            modules=["trainers_of_test_jobs"],
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
    total = int(3 * sum(arm.plan.work() for arm in arms_of("constant", "cascade")))
    assert all(what == "work of all trainings" and 0 < done <= of == total for what, done, of in told["progress"])
    assert told["progress"][-1] == ("work of all trainings", total, total)


@pytest.mark.parametrize(
    ("seed", "error", "match"),
    [
        (9, VcycleError, r"^the process that trained \w+, seed 9, was stopped by SIG(KILL|TERM); the same command"),
        (10, KeyError, "no such key"),
    ],
)
def test_what_all_would_meet_and_a_process_that_ends_early_end_the_study(at_once, seed, error, match):
    found, _ = at_once(seed)
    with pytest.raises(error, match=match) as raised:
        list(found)
    assert active_children() == []
    if seed != 9:
        assert "trainers_of_test_jobs.py" in str(raised.value.__cause__)


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


NETWORK = """
import vcycle
from vcycle.tasks.recognition.models.resnet3d.network import ResNet3d


@vcycle.register_model("of_test_jobs")
def net(classes: int) -> ResNet3d:
    return ResNet3d(classes, widths=[4], blocks=[1], temporal_kernels=[3])
"""


def test_a_study_of_two_jobs_is_that_of_one_with_a_network_that_the_recipes_module_registers(
    digit_videos, own_models, tmp_path, monkeypatch
):
    monkeypatch.setattr("vcycle.bench.jobs.cores", lambda: 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network_of_test_jobs.py").write_text(NETWORK)
    (tmp_path / "tiny.yaml").write_text(TINY.replace(TINY.splitlines()[2], "model: of_test_jobs"))
    recipe = load_recipe("tiny.yaml", [f"data={digit_videos}", "import=network_of_test_jobs"])
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


@pytest.fixture
def long_study(vcycle_beside, wait_for_steps, wait_until, recipe, tmp_path, children):
    """Starts a study of two trainings that take minutes at once: its process, theirs, and the folders of both."""
    study = tmp_path / "study"
    long = ("training.steps=9600", "training.decay=constant", "run.validate_every=1000", "data.cache=24")
    arguments = ["compare", str(tmp_path / "tiny.yaml"), f"data={recipe.data.path}", *long, "plan=constant", "seeds=2"]
    started = vcycle_beside(*arguments, "--jobs", "2", "--out", str(study))
    wait_until(lambda: len(list(study.glob("runs/*/log.jsonl"))) == 2, started.errors.read_text)
    folders = sorted((study / "runs").iterdir())
    for folder in folders:
        wait_for_steps(started.process, folder, 3, started.errors.read_text)
    return started, children(started.process.pid), folders


def is_saved(folder):
    """Whether the last step that a training logged is in a checkpoint."""
    steps = [json.loads(line)["step"] for line in RunFolder(folder).log.read_text().splitlines()]
    checkpoint = latest_checkpoint(RunFolder(folder).checkpoints)
    return checkpoint is not None and checkpoint[0].step == steps[-1] + 1 >= 3


@pytest.mark.forked
def test_a_signal_reaches_every_training_which_saves_its_step(long_study, wait_until):
    started, _, folders = long_study
    os.kill(started.process.pid, signal.SIGHUP)
    wait_until(lambda: not started.process.is_alive(), started.errors.read_text)
    said = started.errors.read_text()
    assert started.process.exitcode == 129, said
    assert said.count("the trainings finish and save their step; Ctrl-C again stops at once") == 1
    assert said.count("stopped after step") == 2
    assert "interrupted by SIGHUP; the same command resumes it" in said
    assert "Traceback" not in said
    assert all(map(is_saved, folders))


@pytest.mark.forked
def test_the_others_save_their_step_when_a_process_is_killed(long_study, wait_until):
    started, jobs, folders = long_study
    trained = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in jobs}
    os.kill(next(pid for pid, line in trained.items() if b"spawn_main" in line), signal.SIGKILL)
    wait_until(lambda: not started.process.is_alive(), started.errors.read_text)
    said = started.errors.read_text()
    assert started.process.exitcode == 2, said
    assert "was stopped by SIGKILL; the same command resumes the study" in said
    assert sorted(map(is_saved, folders)) == [False, True]


def with_workers(recipe, number):
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"workers": number})})


def test_jobs_share_the_cores_and_take_the_gpus_in_turn(recipe, monkeypatch):
    monkeypatch.setattr("vcycle.bench.jobs.cores", lambda: 8)
    assert Jobs.of(3, recipe) == Jobs(number=3, threads=2)
    assert Jobs.of(2, with_workers(recipe, 3)).threads == 2  # half of its cores at least
    assert Jobs.of(3, recipe).own(recipe) == recipe  # which sets its threads
    own = recipe.model_copy(update={"run": recipe.run.model_copy(update={"threads": "auto", "device": "auto"})})
    assert Jobs(number=3, threads=2).own(own).run.threads == "auto"  # the environment sets them
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert Jobs(number=3, threads=2).own(own).run.threads == 2
    assert Jobs(number=1, threads=8).own(own).run.threads == "auto"
    with pytest.raises(RecipeError, match=r"^--jobs 9: 1 to 8 are accepted, as this process has 8 cores$"):
        Jobs.of(9, recipe)
    assert [most_jobs(recipe, trainings) for trainings in (1, 3, 12)] == [1, 3, 4]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert Jobs.of(2, recipe).gpus == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert Jobs.of(2, own).gpus == ("0", "1")
    assert most_jobs(own, 12) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6, GPU-7")
    assert Jobs.of(4, own).gpus == ("6", "GPU-7")
    assert Jobs.of(4, own).notices() == ["4 trainings share 2 GPUs: memory must suffice for those of each"]
    assert Jobs.of(2, own).notices() == Jobs.of(4, recipe).notices() == []
