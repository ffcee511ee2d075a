"""Which files a preparation reads, in which order, and what they are called."""

import os
import tracemalloc
from array import array

import pytest

from vcycle.data.layouts import Strings, VideoList
from vcycle.data.prepare import sources
from vcycle.data.prepare.sources import find_sources


def listed(root, paths):
    labels = array("i", bytes(4 * len(paths)))
    return VideoList(root=root, paths=paths, labels=labels, classes=("any",), source=root / "list.csv")


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """Sort a few names at a time, as with millions."""
    monkeypatch.setattr(sources, "_RUN", 3)


def test_files_are_sorted_by_split_and_name_and_each_video_has_its_row(tmp_path):
    splits = {"val": ["b/z.mp4", "a/y.webm"], "train": ["c/x.mp4", "b/é.mp4", "a/2.mp4", "a/10.mp4", ".hidden"]}
    found = find_sources({split: listed(tmp_path, paths) for split, paths in splits.items()})
    names = ["train/.hidden", "train/a/10", "train/a/2", "train/b/é", "train/c/x", "val/a/y", "val/b/z"]
    assert [file.name for file in found.files] == names
    assert {split: rows.tolist() for split, rows in found.rows.items()} == {"val": [6, 5], "train": [4, 3, 2, 1, 0]}
    assert [file.path for file in found.files[4::2]] == [str(tmp_path / "c/x.mp4"), str(tmp_path / "b/z.mp4")]
    assert found.files[-1] == found.files[6]


def test_a_file_of_several_videos_is_listed_once_and_names_that_conflict_keep_their_suffix(tmp_path):
    paths = ["a.mp4", "b/c.mp4", "a.avi", "./b/c.mp4", "a.mp4.mkv", f"{tmp_path}/b/c.mp4", "/elsewhere/b/c.mp4"]
    found = find_sources({"train": listed(tmp_path, paths)})
    names = ["train/a.avi", "train/a.mp4", "train/a.mp4~2", "train/b/c", "train/elsewhere/b/c"]
    assert [file.name for file in found.files] == names
    assert found.rows["train"].tolist() == [1, 3, 0, 3, 2, 3, 4]


def test_a_file_is_looked_at_when_it_is_asked_for_and_then_remembered(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"123")
    found = find_sources({"train": listed(tmp_path, ["a.mp4", "b.mp4"])})
    (tmp_path / "b.mp4").write_bytes(b"12345")
    stamp = found.files[0].stamp
    assert (stamp.size, found.files[1].size, sum(file.size for file in found.files)) == (3, 5, 8)
    os.truncate(tmp_path / "a.mp4", 1)
    assert found.files[0].stamp == stamp


def test_many_files_take_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_RUN", 10_000)
    count = 50_000
    names = Strings(f"class_{number % 400}/{number:011}_000010_000020.mp4" for number in range(count))
    videos = listed(tmp_path, names)
    find_sources({"train": listed(tmp_path, ["a.mp4"])})  # which imports modules
    tracemalloc.start()
    found = find_sources({"train": videos})
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.files) == count
    assert kept < len(names.encoded) + 60 * count + 1e6
    assert peak < kept + 60 * count + 3e6
