"""A training that stands still says where it does, and goes on."""

import os
import threading
import time

import pytest
import torch

from vcycle.data import VideoDataset
from vcycle.plan import Baseline, constant
from vcycle.train.micro_batching import shapes_from
from vcycle.train.step import TrainStep
from vcycle.train.watchdog import COMPUTING, DATA, OTHERS, Watchdog

PLAN = constant(Baseline(batch=4, frames=8, size=64, clips=40, epochs=200, lr=0.1))


@pytest.fixture
def watch(tmp_path):
    """Makes a watchdog that waits ten minutes; it is looked after by hand."""
    return lambda **more: Watchdog(tmp_path, PLAN, minutes=10, **more)


def test_it_says_after_how_many_steps_at_which_shape_and_waiting_for_what(watch, tmp_path, capfd):
    dog = watch()
    dog.sign(1234, DATA)
    dog.look(time.monotonic() + 600.5)
    said = capfd.readouterr().err
    assert said.startswith(
        "no progress for 10 min, after 1,234 of 2,000 steps (next: 4×8×64²): training is waiting for data: check the "
        "storage that holds the videos. It keeps waiting; stack of every thread:\n"
    )
    written = (tmp_path / "stalls.txt").read_text()
    assert written.splitlines()[0] == said.splitlines()[0]
    assert "test_watchdog.py" in said
    assert "test_watchdog.py" in written


def test_it_speaks_once_for_each_standstill(watch, tmp_path, capfd):
    dog = watch()
    began = time.monotonic()
    for _ in range(2):
        dog.sign(3, COMPUTING)
        for minutes in (11, 22, 33):
            dog.look(began + 60 * minutes)
    assert capfd.readouterr().err.count("no progress") == 2
    assert (tmp_path / "stalls.txt").read_text().count("no progress") == 2


def test_it_is_silent_while_something_happens_and_knows_when_to_look_again(watch, capfd):
    dog, began = watch(), time.monotonic()
    dog.sign(3, COMPUTING)
    assert 0.99 < dog.look(began + 599) < 1.01 + time.monotonic() - began
    assert capfd.readouterr().err == ""


def test_every_forward_pass_of_an_evaluation_is_a_sign_of_life(watch, capfd):
    dog, model = watch(), torch.nn.Linear(1, 1)
    before = time.monotonic()
    with dog.fed_by(model):
        time.sleep(0.01)
        model(torch.zeros(1, 1))
    dog.look(before + 600.005)
    assert capfd.readouterr().err == ""
    assert not model._forward_pre_hooks


def test_each_rank_says_who_it_is_and_has_a_file_of_its_own(watch, tmp_path, capfd):
    for rank in (0, 2):
        dog = watch(rank=rank, world=4)
        dog.sign(2000, OTHERS)
        dog.look(time.monotonic() + 700)
        assert capfd.readouterr().err.startswith(
            f"rank {rank} of 4: no progress for 11.7 min, after 2,000 of 2,000 steps: training is waiting for the "
            "other ranks"
        )
    assert {file.name for file in tmp_path.iterdir()} == {"stalls.txt", "stalls.2.txt"}


def test_a_folder_that_cannot_be_written_to_is_no_reason_to_fail(tmp_path, capfd):
    dog = Watchdog(tmp_path / "nowhere", PLAN, minutes=10)
    dog.look(time.monotonic() + 700)
    assert "no progress" in capfd.readouterr().err


def test_without_minutes_nothing_is_watched(tmp_path):
    before = threading.active_count()
    with Watchdog(tmp_path, PLAN, minutes=None):
        assert threading.active_count() == before


@pytest.fixture
def until_told(wait_until):
    """Stands still until that has been noticed."""
    return lambda file, words: wait_until(lambda: file.exists() and words in file.read_text())


def test_a_disk_that_does_not_answer_while_saving_is_told_of_as_such(
    make_training, record_of, tmp_path, monkeypatch, capfd, until_told
):
    training = make_training("data.cache=24", "run.save_every=8", "run.watchdog=0.002")
    original, slow = os.fsync, []

    def fsync(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name.endswith("step-000000008.pt.partial") and not slow:
            slow.append(name)
            until_told(tmp_path / "stalls.txt", "is writing to the run folder")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    training.run(tmp_path)
    assert slow
    said = (tmp_path / "stalls.txt").read_text()
    assert "training is writing to the run folder: check the storage that holds it." in said
    assert "save_checkpoint" in said
    assert "is writing to the run folder" in capfd.readouterr().err


def test_a_training_that_waits_for_data_is_told_of_as_such(make_training, tmp_path, monkeypatch, until_told):
    training = make_training("data.cache=24", "run.watchdog=0.002")
    original, slow = VideoDataset.__getitem__, []

    def load(self, request):
        if not slow:
            slow.append(request)
            until_told(tmp_path / "stalls.txt", "is waiting for data")
        return original(self, request)

    monkeypatch.setattr(VideoDataset, "__getitem__", load)
    training.run(tmp_path)
    assert "training is waiting for data" in (tmp_path / "stalls.txt").read_text()


@pytest.mark.parametrize("fit", ["always", "never"])
def test_what_is_done_before_the_first_step_is_watched_too(make_training, tmp_path, monkeypatch, fit, until_told):
    training = make_training("data.cache=24", "run.watchdog=0.002", f"run.fit={fit}")
    cell = shapes_from(training.plan, 0)[0]
    said = f"is trying whether {cell} fits into memory" if fit == "always" else f"is preparing {cell}: compiling may"
    original, slow = TrainStep.attempt, []

    def attempt(self, step, batch):
        if not slow:
            slow.append(step)
            until_told(tmp_path / "stalls.txt", said)
        original(self, step, batch)

    monkeypatch.setattr(TrainStep, "attempt", attempt)
    if fit == "never":
        monkeypatch.setattr(TrainStep, "is_ready", lambda self, cell: False)
    training.run_until(0, tmp_path)
    assert said in (tmp_path / "stalls.txt").read_text()
    assert "after 0 of 29 steps" in (tmp_path / "stalls.txt").read_text()
