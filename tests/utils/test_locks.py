"""One process at a time: who waits, who is refused, and when the lock is free again."""

import errno
import fcntl
import multiprocessing
import os
import re
import signal
import socket
import warnings

import pytest

from vcycle.utils.locks import file_lock

FORK = multiprocessing.get_context("fork")


class RefusedError(Exception):
    pass


@pytest.fixture
def elsewhere(held_elsewhere):
    """Holds a lock in another process."""
    return lambda file: held_elsewhere(lambda: file_lock(file))


def take(file, **how):
    with file_lock(file, refusal=RefusedError, **how):
        pass


def test_a_second_process_is_refused_with_the_name_of_the_first(elsewhere, tmp_path):
    process, _ = elsewhere(tmp_path / "lock")
    with pytest.raises(RefusedError, match=re.escape(f"process {process.pid} on {socket.gethostname()}")):
        take(tmp_path / "lock")
    with pytest.raises(RefusedError, match=str(process.pid)):  # the refusal has not erased the name
        take(tmp_path / "lock")


def test_a_second_process_waits_and_says_for_whom(elsewhere, tmp_path):
    process, tell = elsewhere(tmp_path / "x.lock")

    def release(message, *_):
        assert f"waiting for process {process.pid} on {socket.gethostname()}, which writes to {tmp_path}/x" in str(
            message
        )
        tell.send("end")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = release
        with file_lock(tmp_path / "x.lock"):
            process.join()
    assert process.exitcode == 0


def test_a_released_lock_leaves_no_file_behind(elsewhere, tmp_path):
    process, tell = elsewhere(tmp_path / "lock")
    tell.send("end")
    process.join()
    assert list(tmp_path.iterdir()) == []
    take(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_frees_its_lock(elsewhere, tmp_path):
    process, _ = elsewhere(tmp_path / "lock")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    take(tmp_path / "lock")


def test_a_process_that_exits_within_the_lock_frees_it(tmp_path):
    def leave():
        with file_lock(tmp_path / "x.lock"):
            os._exit(0)

    first = FORK.Process(target=leave)
    first.start()
    first.join()
    take(tmp_path / "x.lock")


def test_a_forked_process_does_not_inherit_the_lock(elsewhere, tmp_path):
    """A worker that outlives its killed parent for a moment must not keep others out."""
    mine, theirs = FORK.Pipe()

    def outlive():
        theirs.send(os.getpid())  # by now it has let go of the lock: a fork has it for a moment
        signal.pause()

    def hold():
        with file_lock(tmp_path / "lock"):
            FORK.Process(target=outlive).start()
            signal.pause()

    parent = FORK.Process(target=hold)
    parent.start()
    orphan = mine.recv()
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    try:
        take(tmp_path / "lock")
        os.kill(orphan, 0)  # it is still there
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_a_forked_process_that_ends_does_not_free_its_parents_lock(tmp_path):
    with file_lock(tmp_path / "lock"):
        child = FORK.Process(target=int)
        child.start()
        child.join()
        assert (tmp_path / "lock").exists()
        with pytest.raises(RefusedError, match=f"process {os.getpid()} "):
            take(tmp_path / "lock")


def test_only_a_reentrant_lock_is_taken_twice_by_one_thread(tmp_path):
    with file_lock(tmp_path / "lock"), pytest.raises(RefusedError):
        take(tmp_path / "lock")
    with file_lock(tmp_path / "lock", reentrant=True):
        take(tmp_path / "." / ".." / tmp_path.name / "lock", reentrant=True)
        assert (tmp_path / "lock").exists()
        with pytest.raises(RefusedError):
            take(tmp_path / "lock")


def test_without_locks_the_caller_decides(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    errors = []
    with file_lock(tmp_path / "lock", on_unsupported=errors.append), file_lock(tmp_path / "lock"):
        pass
    assert [error.strerror for error in errors] == ["No locks available"]


def test_a_lock_that_cannot_be_written_is_an_error_of_the_system(tmp_path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        take(tmp_path / "lock")
