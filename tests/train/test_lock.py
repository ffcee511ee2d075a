"""Two processes do not train in one folder."""

import errno
import fcntl
import os
import re
import socket

import pytest

from vcycle.errors import VcycleError
from vcycle.plan import Baseline, constant
from vcycle.train.lock import training_lock
from vcycle.train.run import RunFolder

PLAN = constant(Baseline(batch=4, frames=8, size=64, clips=37, epochs=12, lr=0.1))


@pytest.fixture
def elsewhere(held_elsewhere):
    """Claims a folder in another process."""
    return lambda folder: held_elsewhere(lambda: training_lock(folder))


def holder(process):
    return f"process {process.pid} on {socket.gethostname()}"


def test_a_second_process_is_refused_and_told_who_is_there(elsewhere, tmp_path):
    process, _ = elsewhere(tmp_path)
    said = f"{holder(process)} is training in {tmp_path}: wait until it has ended, or choose another --out"
    with pytest.raises(VcycleError, match=re.escape(said)):
        training_lock(tmp_path).__enter__()


def test_a_process_is_not_in_its_own_way(elsewhere, tmp_path):
    with training_lock(tmp_path):
        with training_lock(tmp_path / "." / ".." / tmp_path.name):
            pass
        assert (tmp_path / "lock").exists()


def test_to_prepare_a_folder_that_another_trains_in_is_refused_before_anything_is_written(elsewhere, tmp_path):
    process, _ = elsewhere(tmp_path)
    with pytest.raises(VcycleError, match=holder(process)):
        RunFolder(tmp_path).prepare(PLAN, "text", resume=False)
    assert {file.name for file in tmp_path.iterdir()} == {"lock"}


def test_a_training_claims_its_folder_until_it_ends(training, elsewhere, tmp_path):
    def second(report):
        if report.step.index == 1:
            with pytest.raises(EOFError):  # it ends before it has claimed anything
                elsewhere(tmp_path)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        training.run(tmp_path, on_step=second)
    elsewhere(tmp_path)


def test_a_file_system_without_locks_is_told_of_and_keeps_nobody_out(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said = []
    with training_lock(tmp_path, said.append), training_lock(tmp_path):
        pass
    assert said == [
        f"{tmp_path} is on a file system without locks (No locks available): vcycle cannot check whether another "
        "process trains there"
    ]


def test_a_folder_that_cannot_be_written_to_is_an_error_in_one_line(tmp_path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(VcycleError, match=r"lock cannot be written: Is a directory$"):
        training_lock(tmp_path).__enter__()
