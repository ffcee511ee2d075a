"""Indexes of videos that are kept between runs: the same as new ones, and never in the way."""

import os
import pickle
import sqlite3
from dataclasses import fields

import numpy as np
import pytest

from vcycle.data import KeptIndexes, VideoError, probe
from vcycle.data.video import kept
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.data import find_videos
from vcycle.tasks.recognition.task import RECOGNITION


@pytest.fixture
def films(write_video, tmp_path):
    """Three videos: one with B-frames, one turned, one whose container does not number its frames."""
    folder = tmp_path / "films"
    write_video(folder / "plain ä.mp4", frames=30)
    write_video(folder / "turned.mp4", frames=5, rotation=90)
    write_video(folder / "counted.avi", frames=20, codec="mpeg4")
    return sorted(str(path) for path in folder.iterdir())


@pytest.fixture
def unprobed(monkeypatch):
    """Fails where a file is indexed anew."""

    def refuse(path):
        raise AssertionError(f"{path} is indexed anew")

    return lambda: monkeypatch.setattr(kept, "probe", refuse)


def same(one, other):
    for field in fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name == "info":
            same(mine, theirs)
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert mine == theirs, field.name


def test_a_kept_index_is_the_index_and_saves_making_it(films, tmp_path, unprobed):
    first = KeptIndexes(tmp_path / "cache/indexes.sqlite")
    for path in films:
        same(first(path), probe(path))
    wanted = [probe(path) for path in films]
    unprobed()
    again = pickle.loads(pickle.dumps(KeptIndexes(first.file)))
    for path, index in zip(films, wanted, strict=True):
        same(again(path), index)
        same(first(path), index)


def test_a_file_that_has_changed_is_indexed_anew(films, write_video, tmp_path):
    indexes = KeptIndexes(tmp_path / "indexes.sqlite")
    before = indexes(films[1])
    write_video(type(tmp_path)(films[1]), frames=7)
    assert before.info.frames == 30
    assert indexes(films[1]).info.frames == 7
    os.utime(films[1], ns=(0, 12345))
    assert indexes(films[1]).modified == 12345


def test_a_bad_video_is_refused_each_time_with_its_cause(tmp_path):
    indexes = KeptIndexes(tmp_path / "indexes.sqlite")
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    for _ in range(2):
        with pytest.raises(VideoError, match=r"bad\.mp4: not a video"):
            indexes(str(tmp_path / "bad.mp4"))
    with pytest.raises(VideoError, match="No such file"):
        indexes(str(tmp_path / "none.mp4"))


def test_a_damaged_file_is_said_and_begun_anew(films, tmp_path, unprobed):
    file = tmp_path / "indexes.sqlite"
    file.write_bytes(b"not a database at all" * 100)
    with pytest.warns(UserWarning, match=r"indexes\.sqlite is damaged .* rebuilding the video indexes"):
        indexes = KeptIndexes(file)
    wanted = indexes(films[0])
    unprobed()
    same(KeptIndexes(file)(films[0]), wanted)


def test_a_damaged_entry_is_made_anew(films, tmp_path):
    file = tmp_path / "indexes.sqlite"
    KeptIndexes(file)(films[0])
    with sqlite3.connect(file) as database:
        (content,) = database.execute("SELECT content FROM indexes").fetchone()
        database.execute("UPDATE indexes SET content=?", (content[:-20],))
    same(KeptIndexes(file)(films[0]), probe(films[0]))


def test_what_was_kept_by_another_version_is_made_anew(films, tmp_path):
    file = tmp_path / "indexes.sqlite"
    KeptIndexes(file)(films[0])
    with sqlite3.connect(file) as database:
        database.execute("UPDATE indexes SET maker='0, av 1.0', content=?", (b"of another form",))
    same(KeptIndexes(file)(films[0]), probe(films[0]))


def test_a_place_that_cannot_be_written_to_keeps_nothing(films, tmp_path):
    (tmp_path / "file").write_text("in the way of a folder")
    same(KeptIndexes(tmp_path / "file/indexes.sqlite")(films[0]), probe(films[0]))


def test_a_full_file_keeps_no_more(films, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_MOST_BYTES", 0)
    indexes = KeptIndexes(tmp_path / "indexes.sqlite")
    for path in films:
        same(indexes(path), probe(path))


def test_processes_share_a_file(films, tmp_path, unprobed):
    indexes = KeptIndexes(tmp_path / "indexes.sqlite")
    indexes(films[0])  # the children inherit a connection
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            try:
                for path in films[number:] + films[:number]:
                    same(indexes(path), probe(path))
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    wanted = [probe(path) for path in films]
    unprobed()
    for path, index in zip(films, wanted, strict=True):
        same(KeptIndexes(indexes.file)(path), index)


def test_a_recipes_videos_are_indexed_once_for_all_runs_beside_each_other(digit_videos, tmp_path, unprobed):
    recipe = load_recipe("videos/small", [f"data={digit_videos}"])
    splits = find_videos(recipe, tmp_path)
    items = range(len(splits.val))
    infos = [RECOGNITION.dataset(recipe, splits, "val", tmp_path).source.info(item).frames for item in items]
    assert (tmp_path / "cache/indexes.sqlite").is_file()
    unprobed()
    again = RECOGNITION.dataset(recipe, splits, "val", tmp_path)
    assert [again.source.info(item).frames for item in items] == infos
