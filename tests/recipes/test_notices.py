"""What is said before a training that is allowed, and perhaps not what was meant."""

import shutil

import pytest

from vcycle.data import PrepareSettings, prepare_videos
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.recognition.data import every_video, find_videos
from vcycle.tasks.recognition.notices import notices


def told(tmp_path, *overrides):
    recipe = load_recipe("videos/small", list(overrides))
    return [line for line in notices(recipe, find_videos(recipe, tmp_path)) if not line.startswith("layout: ")]


@pytest.fixture(scope="module")
def prepared(digit_videos, tmp_path_factory):
    """The videos of 24 pixels, kept at 16."""
    out = tmp_path_factory.mktemp("prepared") / "out"
    splits = every_video(load_recipe("videos/small", [f"data={digit_videos}"]))
    prepare_videos(splits, out, PrepareSettings(levels=(16,)), workers=1)
    return out


def test_a_prepared_set_that_is_smaller_than_the_crop_is_said_with_the_side_that_would_do(prepared, tmp_path):
    (said,) = told(tmp_path, f"data={prepared}", "training.size=22")
    assert said.startswith(f"{prepared}: all videos are stored at a short side of 16 pixels or less, and a clip of ")
    assert "training.size 22 needs a short side of 22 pixels or more: they are upscaled" in said
    assert "--short-side 26" in said


def test_the_pictures_that_the_sampling_takes_clips_from_count(prepared, tmp_path):
    sides = ["sampling.field=null", "sampling.short_side=[20, 24]"]
    (said,) = told(tmp_path, f"data={prepared}", "training.size=16", *sides)
    assert "training.size 16 needs a short side of 20 pixels or more" in said


def test_videos_that_have_no_more_pixels_need_not_be_prepared_again(digit_videos, tmp_path):
    splits = every_video(load_recipe("videos/small", [f"data={digit_videos}"]))
    prepare_videos(splits, tmp_path / "out", PrepareSettings(levels=(64,)), workers=1)
    (said,) = told(tmp_path, f"data={tmp_path / 'out'}", "training.size=48")
    assert "24 pixels or less" in said
    assert "the originals have no more pixels" in said


@pytest.mark.parametrize("size", [12, 16])
def test_a_prepared_set_that_is_large_enough_is_not_spoken_of(prepared, tmp_path, size):
    assert told(tmp_path, f"data={prepared}", f"training.size={size}") == []


def test_a_cache_that_is_smaller_than_the_crop_is_said(digit_videos, tmp_path):
    (said,) = told(tmp_path, f"data={digit_videos}", "training.size=22", "data.cache=16")
    assert said.startswith("data.cache=16: a clip of training.size 22 needs a short side of 22 pixels or more")
    assert said.endswith("data.cache=26 is enough")
    assert told(tmp_path, f"data={digit_videos}", "training.size=22", "data.cache=22") == []


def test_one_split_given_as_the_whole_is_said(digit_videos, tmp_path):
    (said,) = told(tmp_path, f"data={digit_videos / 'train'}")
    assert f"is one split of several: data={digit_videos} takes its val and test as well" in said
    assert told(tmp_path, f"data={digit_videos}") == []
    alone = shutil.copytree(digit_videos / "train", tmp_path / "alone" / "train")
    assert told(tmp_path, f"data={alone}") == []
