"""A file is whole or as it was, whatever interrupts its writing."""

import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from vcycle.errors import VcycleError
from vcycle.utils.atomic import atomic_path, atomic_text, atomic_write, partial_of

FORK = multiprocessing.get_context("fork")


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_file_takes_its_name_once_it_is_whole(tmp_path):
    file = tmp_path / "a.txt"
    with atomic_write(file) as handle:
        handle.write(b"new")
        assert names(tmp_path) == [partial_of(file).name]
    assert names(tmp_path) == ["a.txt"]
    assert file.read_bytes() == b"new"


def test_after_an_error_the_file_is_as_it_was_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "a.txt"
    atomic_text(file, "old")

    def fail():
        with atomic_write(file) as handle:
            handle.write(b"half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert names(tmp_path) == ["a.txt"]
    assert file.read_text() == "old"


def test_a_kill_leaves_the_file_as_it_was(tmp_path):
    file = tmp_path / "a.txt"
    atomic_text(file, "old")

    def die():
        with atomic_write(file) as handle:
            handle.write(b"half")
            handle.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    process = FORK.Process(target=die)
    process.start()
    process.join()
    assert file.read_text() == "old"
    atomic_text(file, "new")  # what was left behind does not matter
    assert names(tmp_path) == ["a.txt"]
    assert file.read_text() == "new"


@pytest.mark.parametrize("durable", [True, False])
def test_a_library_writes_to_a_path(tmp_path, durable):
    with atomic_path(tmp_path / "a.txt", durable=durable) as path:
        path.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "b.txt", durable=durable):
        pass  # it has written nothing
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_and_its_new_name_are_synced_to_disk(tmp_path, monkeypatch, durable):
    synced = []

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if os.path.isdir(descriptor):  # as of file systems that sync no folders
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_path(tmp_path / "a.txt", durable=durable) as path:
        path.write_text("new")
    assert synced == ([str(path), str(tmp_path)] if durable else [])


def test_a_text_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    with pytest.raises(VcycleError, match=r"none/a\.txt cannot be written: No such file or directory$"):
        atomic_text(tmp_path / "none" / "a.txt", "text")
    with pytest.raises(VcycleError, match="cannot be written"):
        atomic_text(Path("/dev/null/a.txt"), "text")


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "target.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("target.txt")
    atomic_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "target.txt").read_text() == "new"
    (tmp_path / "target.txt").unlink()
    atomic_text(tmp_path / "link.txt", "again")  # a link to nothing names a new file
    assert (tmp_path / "target.txt").read_text() == "again"


def test_a_device_and_a_pipe_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(VcycleError, match=f"{name} cannot be written: not a regular file$"):
            atomic_text(tmp_path / name, "text")
    assert sorted(names(tmp_path)) == ["link", "pipe"]
    with pytest.raises(OSError, match="not a regular file"), atomic_write(Path("/dev/null")):
        pass
