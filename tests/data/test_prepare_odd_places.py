"""Preparing where names are as long as they may be, disks are small, or locks are missing."""

import errno
import fcntl
import tempfile

import pytest

from vcycle.data import Preparation, PrepareSettings, load_index, prepare_videos, read_videos
from vcycle.data.prepare import estimate
from vcycle.errors import DataError
from vcycle.utils.atomic import atomic_write, partial_of

pytestmark = pytest.mark.usefixtures("fresh_interpreters")

SETTINGS = PrepareSettings(levels=(24,))


@pytest.fixture
def long_names(write_video, tmp_path):
    """Three videos whose names take 255 bytes: two that leave no room for an ending, and one that is longer written."""
    root = tmp_path / "videos"
    names = ["a" * 251 + ".mp4", "ä" * 125 + "b.mp4", "c" * 252 + ".ts"]
    for name in [*names, "short.mp4"]:
        write_video(root / "train/run" / name, frames=3)
    write_video(root / "val/run/short.mp4", frames=3)
    return root, names


def test_names_without_room_for_an_ending_are_prepared_and_one_that_cannot_be_written_fails_alone(long_names, tmp_path):
    root, names = long_names
    splits = {split: read_videos(root, split) for split in ("train", "val")}
    report = prepare_videos(splits, tmp_path / "out", SETTINGS, workers=1)
    ((path, cause),) = report.failed.items()
    assert path.endswith(names[2])
    assert "its name is too long" in cause
    assert "255 bytes" in cause
    assert len(load_index(tmp_path / "out").videos("train")) == 3
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_a_file_of_the_longest_name_is_written_whole(tmp_path):
    file = tmp_path / ("x" * 255)
    with atomic_write(file) as handle:
        assert partial_of(file).exists()
        handle.write(b"content")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_an_estimate_tries_files_on_the_disk_that_will_be_written_to(video_set, tmp_path, monkeypatch):
    used = []
    folder = tempfile.TemporaryDirectory

    def noted(**how):
        used.append(how["dir"])
        return folder(**how)

    monkeypatch.setattr(estimate.tempfile, "TemporaryDirectory", noted)
    splits = {split: read_videos(video_set, split) for split in ("train", "val")}
    there = tmp_path / "disk"
    there.mkdir()
    assert Preparation(splits, there / "new" / "out", SETTINGS, workers=1).estimate() is not None
    assert Preparation(splits, there, SETTINGS, workers=1).estimate() is not None
    assert used == [there, there]
    assert list(there.iterdir()) == []


def test_what_an_estimate_that_was_killed_left_behind_is_no_obstacle(video_set, tmp_path):
    splits = {split: read_videos(video_set, split) for split in ("train", "val")}
    (tmp_path / "out/.vcycle-killed").mkdir(parents=True)
    (tmp_path / "out/.vcycle-killed/0-24.mp4").write_bytes(b"half")
    prepare_videos(splits, tmp_path / "out", SETTINGS, workers=1)
    assert not (tmp_path / "out/.vcycle-killed").exists()


def test_a_folder_that_cannot_be_locked_is_not_said_to_be_in_use(video_set, tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    splits = {split: read_videos(video_set, split) for split in ("train", "val")}
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(DataError, match=r"out: cannot be locked .*No locks available.*file system with locks"):
        prepare_videos(splits, tmp_path / "out", SETTINGS, workers=1)
