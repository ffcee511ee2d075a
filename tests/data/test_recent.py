"""What is remembered of the items asked for last: as much as a size allows, whatever one of them takes."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from vcycle.data import FileSource, PreparedSource, PrepareSettings, prepare_videos, probe, read_videos
from vcycle.data.recent import Recent


@dataclass(frozen=True, slots=True)
class Made:
    """Something of a size."""

    name: str
    times: np.ndarray


class Maker:
    """Makes values of given sizes, and notes of which items."""

    def __init__(self, sizes):
        self.sizes = sizes
        self.made = []

    def __call__(self, item):
        self.made.append(item)
        return Made(str(item), np.zeros(self.sizes[item], dtype=np.uint8))


def test_as_many_are_kept_as_the_size_allows_and_the_first_go_first():
    make = Maker([10_000] * 6)
    recent = Recent(make, most_bytes=35_000)
    for item in range(5):
        assert len(recent(item).times) == 10_000
        assert len(recent) == min(item + 1, 3)
    assert [recent(item).name for item in (2, 3, 4)] == ["2", "3", "4"]
    assert make.made == [0, 1, 2, 3, 4]
    recent(0)
    assert make.made[5:] == [0]


def test_a_large_value_takes_the_place_of_many_and_is_kept_even_where_it_is_larger_than_all():
    make = Maker([1_000] * 20 + [19_000, 90_000])
    recent = Recent(make, most_bytes=30_000)
    for item in range(20):
        recent(item)
    assert len(recent) == 20
    recent(20)
    assert 2 < len(recent) < 15
    for _ in range(3):
        recent(21)
    assert len(recent) == 1
    assert make.made.count(21) == 1
    recent(0)
    assert len(recent) == 1


def test_lists_of_names_and_views_of_arrays_count_too():
    everything = np.zeros(50_000, dtype=np.uint8)
    for value in (["x" * 1000] * 50, (everything[1:], "x"), everything.reshape(5, -1)):
        recent = Recent(lambda _, value=value: value, most_bytes=90_000)
        for item in range(3):
            recent(item)
        assert len(recent) == 1


def test_what_cannot_be_made_is_not_kept():
    def fail(item):
        raise ValueError(item)

    recent = Recent(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="7"):
            recent(7)
    assert len(recent) == 0


def test_it_goes_to_another_process_as_it_is():
    recent = Recent(Maker([1000] * 3), most_bytes=2500)
    recent(0)
    again = pickle.loads(pickle.dumps(recent))
    assert again(0).name == "0"
    assert again._make.made == [0]
    assert [again(item).name for item in (1, 2)] == ["1", "2"]
    assert len(again) == 2


def test_indexes_of_long_videos_take_no_more_memory_than_those_of_short_ones(tmp_path, write_video):
    for number in range(3):
        write_video(tmp_path / f"set/a/{number}.mp4", 400)
    videos = read_videos(tmp_path / "set", "train", val_fraction=0)
    prepare_videos({"train": videos}, tmp_path / "out", PrepareSettings(levels=(24,)))
    files, prepared = FileSource(videos), PreparedSource(tmp_path / "out", "train")
    index = probe(str(videos.path(0)))
    assert index.pts.nbytes + index.shown.nbytes + index.info.times.nbytes > 9_000
    files._indexes._most, prepared._infos._most = 15_000, 5_000
    for item in range(3):
        assert files.info(item).frames == prepared.info(item).frames == 400
    assert (len(files._indexes), len(prepared._infos)) == (1, 1)
