"""A preparation that is run again: what it keeps, what it does again, and what it refuses."""

import os
import shutil

import numpy as np
import pytest

from vcycle.data import PreparedSource, PrepareSettings, VideoError, load_index, prepare_videos, read_videos
from vcycle.data.prepare.names import is_prepared
from vcycle.data.prepare.settings import short_side_for
from vcycle.errors import DataError

VIDEO = PrepareSettings(levels=(24, 48))
ARRAY = PrepareSettings(to="array", levels=(24, 48))
FORMS = pytest.mark.parametrize("settings", [VIDEO, ARRAY], ids=["video", "array"])


def content(folder):
    """All that a loader may see of a prepared folder."""
    ignored = ("report.json", "journal.jsonl", "prepare.json", ".lock")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ignored)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def prepared_once(prepare, video_set, tmp_path_factory):
    """The set as videos and as an array, prepared by one worker, and what is in them."""
    found = {}
    for settings in (VIDEO, ARRAY):
        folder = tmp_path_factory.mktemp("prepared") / "out"
        prepare(video_set, folder, settings)
        found[settings] = folder, content(folder)
    return found


@pytest.fixture
def prepared(prepared_once, tmp_path):
    """Copies such a folder to `out`: the copy, and what is in it."""

    def copy(settings):
        folder, before = prepared_once[settings]
        return shutil.copytree(folder, tmp_path / "out"), before

    return copy


@FORMS
def test_the_bytes_do_not_depend_on_the_workers_nor_on_the_time(prepare, video_set, prepared_once, tmp_path, settings):
    prepare(video_set, tmp_path / "three", settings, workers=3)
    assert content(tmp_path / "three") == prepared_once[settings][1]


@FORMS
def test_a_second_run_keeps_what_is_there_and_a_changed_source_is_done_again(
    prepare, video_set, tmp_path, settings, write_video
):
    root = shutil.copytree(video_set, tmp_path / "set")
    out = tmp_path / "out"
    prepare(root, out, settings)
    before = content(out)
    assert prepare(root, out, settings).kept == 10
    assert content(out) == before
    write_video(root / "val/run/a.mp4", 7)
    assert prepare(root, out, settings).kept == (9 if settings is VIDEO else 8)  # in an array, others move
    prepare(root, tmp_path / "fresh", settings)
    assert content(out) == content(tmp_path / "fresh")


@FORMS
def test_what_was_damaged_since_is_found_by_its_checksum_and_done_again(prepare, video_set, prepared, settings):
    out, before = prepared(settings)
    victim = out / ("48px/val/run/a.mp4" if settings is VIDEO else "48px/val.u8")
    flipped = bytearray(victim.read_bytes())
    flipped[700] ^= 1
    victim.write_bytes(flipped)
    assert prepare(video_set, out, settings).kept == 9
    assert content(out) == before


def test_a_cut_journal_and_half_written_files_are_no_obstacle(prepare, video_set, prepared):
    out, before = prepared(VIDEO)
    journal = out / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    (out / "24px/val/run/a.mp4.partial").write_bytes(b"half")
    assert prepare(video_set, out, VIDEO).kept == 9
    assert prepare(video_set, out, VIDEO).kept == 10
    assert content(out) == before


@pytest.mark.parametrize("damage", [b"x", b"{}", b'{"file": "val/run/a", "source": [1, 2], "written": {}}', b"\0\0"])
def test_a_damaged_line_of_the_journal_costs_its_own_file_alone(prepare, video_set, prepared, damage):
    out, before = prepared(VIDEO)
    first, _, *rest = (out / "journal.jsonl").read_bytes().split(b"\n")
    (out / "journal.jsonl").write_bytes(b"\n".join([first, damage, *rest]))
    assert prepare(video_set, out, VIDEO).kept == 9
    assert prepare(video_set, out, VIDEO).kept == 10
    assert content(out) == before


def test_a_file_of_another_size_than_the_index_says_is_a_bad_sample(prepared):
    out, _ = prepared(VIDEO)
    victim = out / "48px/val/run/a.mp4"
    victim.write_bytes(victim.read_bytes() + b"more")
    source = PreparedSource(out, "val")
    with pytest.raises(VideoError, match=r"48px/val/run/a\.mp4: the file has changed"):
        source.read(0, np.array([0]), resized=(48, 64), crop=(0, 0, 48, 64), antialias=True)


def test_an_array_that_was_cut_short_is_refused(prepared):
    out, _ = prepared(ARRAY)
    os.truncate(out / "24px/val.u8", 100)
    with pytest.raises(DataError, match=r"24px/val\.u8: is truncated: has 100 of"):
        PreparedSource(out, "val")


def test_a_folder_of_other_settings_data_or_content_is_refused(prepare, video_set, prepared, tmp_path):
    out, _ = prepared(VIDEO)
    with pytest.raises(DataError, match="out: was prepared with levels 24, 48, not 24: choose another"):
        prepare(video_set, out, PrepareSettings(levels=(24,)))
    with pytest.raises(DataError, match="out: was prepared with to video, not array"):
        prepare(video_set, out, ARRAY)
    copy = shutil.copytree(video_set, tmp_path / "copy")
    with pytest.raises(DataError, match=r"out: was prepared with data .*set/train, not .*copy/train"):
        prepare(copy, out, VIDEO)
    with pytest.raises(DataError, match="is not empty and holds no prepared dataset"):
        prepare(video_set, copy, VIDEO)
    with pytest.raises(DataError, match="cannot be inside"):
        prepare(video_set, video_set / "train/out", VIDEO)


def test_a_set_of_which_nothing_can_be_read_is_an_error(tmp_path):
    (tmp_path / "set/a").mkdir(parents=True)
    (tmp_path / "set/a/x.mp4").touch()
    with pytest.raises(DataError, match="none of 1 videos can be read, train/a/x: an empty file"):
        prepare_videos({"train": read_videos(tmp_path / "set", "train", val_fraction=0)}, tmp_path / "out", VIDEO)


def test_an_index_that_is_damaged_or_of_another_version_is_refused(prepared):
    out, _ = prepared(VIDEO)
    whole = (out / "index.npz").read_bytes()
    for wrong in (b"", whole[: len(whole) // 2], whole.replace(b'"format": 1', b'"format": 9')):
        (out / "index.npz").write_bytes(wrong)
        with pytest.raises(DataError, match=r"index\.npz: "):
            load_index(out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ()}, "ascending"),
        ({"levels": (64, 32)}, "ascending"),
        ({"levels": (0,)}, "from 1 to"),
        ({"levels": (33,)}, "even"),
        ({"levels": (32,), "to": "gif"}, "video or array"),
    ],
)
def test_settings_that_cannot_be_written_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        PrepareSettings(**options)


def test_the_default_size_leaves_room_around_the_crop():
    assert [short_side_for(side) for side in (16, 112, 224)] == [20, 130, 258]


@FORMS
def test_a_folder_whose_videos_are_being_replaced_is_not_ready(prepare, video_set, tmp_path, settings, write_video):
    root, out = shutil.copytree(video_set, tmp_path / "set"), tmp_path / "out"
    prepare(root, out, settings)

    def stop(what, done, total):
        if what.startswith("preparing"):
            raise KeyboardInterrupt

    write_video(root / "val/run/a.mp4", 7)
    with pytest.raises(KeyboardInterrupt):
        prepare(root, out, settings, progress=stop)
    assert not is_prepared(out)
    prepare(root, out, settings)
    assert PreparedSource(out, "val").info(0).frames == 7
