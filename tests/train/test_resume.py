"""A run that is killed and resumed is the run that was never interrupted, to the last bit."""

import multiprocessing
import os
import random
import re
import signal
import time

import pytest
import torch

from vcycle.cli.app import app
from vcycle.train.run import RunFolder
from vcycle.utils.jsonl import JsonLines


@pytest.fixture(scope="module")
def whole(training, record_of, tmp_path_factory):
    """What the run that is never interrupted does."""
    folder = tmp_path_factory.mktemp("whole")
    training.run(folder)
    return record_of(folder)


def test_trying_every_shape_first_changes_nothing(make_training, whole, record_of, tmp_path):
    make_training("data.cache=24", "run.fit=always").run(tmp_path)
    assert RunFolder(tmp_path).fit.exists()
    assert record_of(tmp_path) == whole


@pytest.fixture
def run_and_die(tmp_path):
    """Runs a function in a process of its own, which kills itself with SIGKILL inside; gives the run's folder."""

    def run(work):
        process = multiprocessing.get_context("fork").Process(target=work, args=(tmp_path,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        return tmp_path

    return run


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_step(training, step):
    """Dies after the update of a step, before its checkpoint: the run goes on at this very step."""
    return lambda folder: training.run(folder, on_step=lambda report: die() if report.step.index == step else None)


def test_the_plan_has_every_kind_of_step(training):
    plan = training.plan
    assert [stage.steps for stage in plan.stages[:4]] == [4, 3, 4, 4]
    assert {len(stage.pattern) for stage in plan.stages} == {3}
    ramp = [step.lr for step in plan if step.first_sample < plan.warmup_samples]
    assert len(ramp) == 7
    assert ramp == sorted(ramp)


@pytest.mark.forked
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(0, id="at the first step"),
        pytest.param(2, id="inside warm-up"),
        pytest.param(6, id="before a stage edge"),
        pytest.param(7, id="at a stage edge"),
        pytest.param(8, id="after a stage edge"),
        pytest.param(12, id="short cycle, first"),
        pytest.param(13, id="short cycle, second"),
        pytest.param(14, id="short cycle, third"),
        pytest.param(28, id="at the last step"),
    ],
)
def test_a_run_killed_in_a_step_goes_on_as_if_it_had_not_been(training, whole, record_of, run_and_die, step):
    folder = run_and_die(killed_in_step(training, step))
    said = []
    training.run(folder, resume=True, on_message=said.append)
    start = f"resuming at step {step} of 29 from {folder}/checkpoints/step-{step:09d}.pt"
    assert said == [start if step else f"nothing to resume in {folder}: starting from the beginning"]
    assert record_of(folder) == whole


@pytest.mark.forked
@pytest.mark.parametrize("every", [4, 100])
def test_what_was_done_since_the_last_checkpoint_is_done_again(
    make_training, whole, record_of, newest, run_and_die, every
):
    training = make_training("data.cache=24", f"run.save_every={every}")
    folder = run_and_die(killed_in_step(training, 10))
    assert newest(folder).step == (8 if every == 4 else 0)
    training.run(folder, resume=True)
    assert record_of(folder) == whole


@pytest.mark.forked
def test_the_number_of_workers_may_change_where_a_run_goes_on(make_training, training, whole, record_of, run_and_die):
    two = make_training("data.cache=24", "data.workers=2")
    folder = run_and_die(killed_in_step(two, 9))
    training.run(folder, resume=True)
    assert record_of(folder) == whole


@pytest.mark.forked
@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_while_saving_leaves_the_checkpoint_before(training, whole, record_of, run_and_die, monkeypatch, moment):
    original = getattr(os, moment)

    def deadly(*args):
        # The ninth checkpoint is written aside by now, and not in its place yet.
        if any((folder / "checkpoints").glob("step-000000008.pt.partial")):
            die()
        return original(*args)

    folder = None

    def work(path):
        nonlocal folder
        folder = path
        monkeypatch.setattr(os, moment, deadly)
        training.run(path)

    path = run_and_die(work)
    names = sorted(file.name for file in (path / "checkpoints").iterdir())
    assert names == ["best.pt", "step-000000006.pt", "step-000000007.pt", "step-000000008.pt.partial"]
    training.run(path, resume=True)
    assert record_of(path) == whole
    names = sorted(file.name for file in (path / "checkpoints").iterdir())
    assert names == ["best.pt", "step-000000028.pt", "step-000000029.pt"]


def test_a_finished_run_that_is_resumed_has_nothing_left_to_do(training, whole, record_of, tmp_path):
    first = training.run(tmp_path)
    again = training.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole
    assert again.curve == first.curve
    assert (again.seconds, again.data_seconds, again.replaced) == (first.seconds, first.data_seconds, first.replaced)
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))


def test_times_add_up_over_the_processes_of_a_run(training, newest, tmp_path):
    training.run_until(9, tmp_path)
    before = newest(tmp_path).totals
    spent = []
    began = time.perf_counter()
    fitted = training.run(tmp_path, resume=True, on_step=lambda report: spent.append(report))
    took = time.perf_counter() - began
    assert before["seconds"] + sum(report.seconds for report in spent) <= fitted.seconds <= before["seconds"] + took
    waited = sum(report.data_seconds for report in spent)
    assert fitted.data_seconds == pytest.approx(before["data_seconds"] + waited)
    assert before["cpu_seconds"] < fitted.cpu_seconds


# Real processes, killed from outside ------------------------------------------------------------------------


def command(training, folder, *options):
    return "train", str(training.file), f"data={training.recipe.data.path}", *options, "--out", str(folder)


def wait_to_be_killed(report):
    """At its last step a run waits: however late the test strikes, it has not ended."""
    while report.step.index == 28:
        signal.pause()


@pytest.mark.forked
def test_killed_from_outside_at_any_moment_again_and_again_it_is_the_same_run(
    training, whole, record_of, tmp_path, wait_for_steps
):
    moments = random.Random(3)
    for steps in (1, 6, 12, 19):
        process = multiprocessing.get_context("fork").Process(
            target=training.run, args=(tmp_path,), kwargs={"resume": True, "on_step": wait_to_be_killed}
        )
        process.start()
        wait_for_steps(process, tmp_path, steps, every=0.005)
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    training.run(tmp_path, resume=True)
    assert record_of(tmp_path) == whole


@pytest.mark.forked
def test_the_command_survives_kill_minus_nine_and_goes_on_without_its_workers(
    vcycle, vcycle_beside, training, whole, record_of, tmp_path, monkeypatch, wait_for_steps
):
    folder = tmp_path / "run"
    replace = os.replace

    def held(old, new):
        while str(new).endswith("step-000000020.pt"):  # however late the test strikes, the run has not ended
            signal.pause()
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", held)
        process, _ = vcycle_beside(*command(training, folder, "data.workers=2"))
    wait_for_steps(process, folder, 3, every=0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    ran = vcycle(*command(training, folder, "data.workers=0", "--resume"))
    assert ran.code == 0, ran.err
    assert "resuming at step" in ran.err
    assert record_of(folder) == whole


def test_a_run_interrupted_before_its_first_step_keeps_the_command_that_started_it(training, tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run")

    def interrupt():
        raise KeyboardInterrupt

    def start(command, **how):
        monkeypatch.setattr("sys.argv", ["vcycle", *command.split()])
        training.run_until(1, run.path, **how)

    def interrupted(command, **how):
        monkeypatch.setattr("sys.argv", ["vcycle", *command.split()])
        with pytest.raises(KeyboardInterrupt):
            training.run(run.path, on_start=interrupt, **how)

    interrupted("train other.yaml --out run")  # the run of this recipe never took a step, and is replaced
    interrupted("train mine.yaml --out run")
    interrupted("train run --resume", resume=True)
    start("train run --resume", resume=True)
    start("train run --resume run.threads=1", resume=True)
    lines = list(JsonLines(run.environment).read())
    assert [(line["step"], line["command"], "device" in line) for line in lines] == [
        (0, "vcycle train mine.yaml --out run", False),
        (0, "vcycle train run --resume", True),
        (1, "vcycle train run --resume run.threads=1", True),
    ]
    app(["report", str(run.path)], standalone_mode=False)
    text = (run.path / "report.html").read_text(encoding="utf-8")
    assert [line["command"] for line in lines] == re.findall(r"^(vcycle train (?!.*again).*?)(?:</pre>|$)", text, re.M)
