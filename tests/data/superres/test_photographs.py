"""Clips of photographs under a moving camera: what is made, where it comes from, and when it is made anew."""

import json

import numpy as np
import pytest

from vcycle.data.pictures import read_picture
from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.layouts import read_pairs
from vcycle.tasks.superres.pairs.photographs import MARKER, PhotographSettings, render_photographs

SMALL = PhotographSettings(clips={"train": 2, "test": 1}, frames=3, size=32)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return render_photographs(tmp_path_factory.mktemp("made") / "photographs", SMALL)


def test_clips_are_folders_of_numbered_pictures_that_are_found_as_any_others(made):
    pairs = read_pairs(made / "train")
    assert list(pairs.high.names) == ["00", "01"]
    info = pairs.info(1)
    assert (info.frames, info.height, info.width) == (3, 32, 32)


def test_the_camera_moves_and_sees_light_and_dark(made):
    frames = read_pairs(made / "test").high.read(0, range(3))
    assert not np.array_equal(frames[0], frames[1])
    assert np.ptp(frames) > 60


def test_a_clip_depends_on_its_own_name_alone(made, tmp_path):
    more = PhotographSettings(clips={"train": 1, "val": 1}, frames=3, size=32)
    other = render_photographs(tmp_path / "other", more)
    first = "train/00/0001.png"
    assert np.array_equal(read_picture(made / first), read_picture(other / first))


def test_a_finished_set_is_kept_and_another_or_a_cut_one_is_made_anew(tmp_path):
    settings = PhotographSettings(clips={"test": 1}, frames=1, size=16)
    root = render_photographs(tmp_path / "set", settings)
    told = []
    render_photographs(root, settings, progress=lambda *done: told.append(done))
    assert told == []
    held = json.loads((root / MARKER).read_text())
    (root / MARKER).write_text(json.dumps({**held, "finished": False}))
    render_photographs(root, settings, progress=lambda *done: told.append(done))
    assert told == [(1, 1)]


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(DataError, match=r"is not empty and has no photographs\.json"):
        render_photographs(tmp_path, SMALL)
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"size": 400}, "size is 400: give 16 to 300"),
        ({"zoom": 0.5}, "zoom is 0.5"),
        ({"clips": {"exam": 1}}, "give 1 or more to some of train, val, test"),
        ({"frames": 0}, "frames is 0"),
        ({"speed": (2.0, 1.0)}, "low <= high"),
        ({"turn": -1.0}, "turn is -1.0"),
    ],
)
def test_what_cannot_be_made_is_refused(changed, said):
    with pytest.raises(DataError, match=said):
        PhotographSettings(**changed)
