"""The views of an evaluation: where clips begin and crops lie."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vcycle.data import GridSampler, VideoDataset, VideoInfo, Views, evaluation_loader, read_videos
from vcycle.errors import DataError
from vcycle.plan import Shape

KINETICS = GridSampler(frames=32, size=224, stride=2, short_side=(256, 340), flip=True)
VIDEO = VideoInfo.uniform(300, 256, 340, fps=30)
TEN_BY_THREE = Views(shape=Shape(32, 256, 256), clips=10, crops=3, short_side=256)


def frames_of(views, clip, info=VIDEO, sampler=KINETICS):
    return info.frame_at(sampler.view(views, clip, info).times).tolist()


# By arithmetic: a clip of 32 frames at stride 2 spans 64 of 300 frames and leaves room for 236, in nine steps;
# its frames lie in the middle of their shares of two. PySlowFast divides by ten, and never shows the last 24 frames
# (SlowFast#169).
def test_ten_clips_reach_from_the_first_frame_to_the_last():
    starts = [KINETICS.view(TEN_BY_THREE, clip, VIDEO).times[0] * 30 - 1 for clip in range(10)]
    assert starts == pytest.approx([236 * clip / 9 for clip in range(10)])
    assert frames_of(TEN_BY_THREE, 0) == list(range(1, 64, 2))
    assert frames_of(TEN_BY_THREE, 9) == list(range(237, 300, 2))


def test_at_stride_one_the_ends_themselves_are_seen():
    sampler = GridSampler(frames=8, size=32, stride=1)
    info = VideoInfo.uniform(50, 32, 32)
    views = Views(shape=Shape(8, 32, 32), clips=3)
    seen = [info.frame_at(sampler.view(views, clip, info).times).tolist() for clip in range(3)]
    assert seen == [list(range(8)), list(range(21, 29)), list(range(42, 50))]


def test_one_clip_is_the_middle():
    info = VideoInfo.uniform(50, 32, 32)
    views = Views(shape=Shape(8, 32, 32))
    assert frames_of(views, 0, info, GridSampler(frames=8, size=32, stride=1)) == list(range(21, 29))


def test_clips_of_a_video_that_is_shorter_than_one_are_all_the_same():
    short = VideoInfo.uniform(20, 256, 340, fps=30)
    seen = [frames_of(TEN_BY_THREE, clip, short) for clip in range(10)]
    assert all(frames == seen[0] for frames in seen)
    assert seen[0][-1] == 19
    single = VideoInfo.uniform(1, 256, 340, fps=30)
    assert frames_of(TEN_BY_THREE, 4, single) == [0] * 32


# (width - crop) / 2 is rounded up, as in PySlowFast: the odd pixel lies on the left.
@pytest.mark.parametrize(("room", "places"), [(84, [0, 42, 84]), (85, [0, 43, 85]), (0, [0, 0, 0]), (1, [0, 1, 1])])
def test_three_crops_are_the_left_the_middle_and_the_right(room, places):
    assert [TEN_BY_THREE.crop_at(crop, room) for crop in range(3)] == places
    assert Views(shape=Shape(8, 64, 64)).crop_at(0, room) == places[1]


@pytest.mark.parametrize(
    ("height", "width", "resized", "strip"),
    [
        (256, 340, (256, 340), (0, 0, 256, 340)),
        (720, 1280, (256, 455), (0, 0, 256, 455)),
        (1280, 720, (455, 256), (0, 0, 455, 256)),
        (300, 300, (256, 256), (0, 0, 256, 256)),
    ],
)
def test_crops_lie_along_the_longer_side(height, width, resized, strip):
    grid = KINETICS.view(TEN_BY_THREE, 0, VideoInfo.uniform(300, height, width, fps=30))
    assert grid.resized == resized
    assert grid.crop == strip


def test_a_strip_is_centered_across_the_shorter_side():
    views = Views(shape=Shape(32, 224, 224), crops=3, short_side=256)
    assert KINETICS.view(views, 0, VIDEO).crop == (16, 0, 224, 340)


@given(
    clips=st.integers(1, 12),
    crops=st.integers(1, 5),
    size=st.integers(1, 200),
    video=st.tuples(st.integers(1, 400), st.integers(8, 300), st.integers(8, 300)),
)
def test_views_always_fit_and_their_order_is_that_of_time(clips, crops, size, video):
    info = VideoInfo.uniform(*video, fps=25)
    views = Views(shape=Shape(8, size, size), clips=clips, crops=crops)
    starts = []
    for clip in range(clips):
        grid = KINETICS.view(views, clip, info)
        top, left, height, width = grid.crop
        assert 0 <= top <= grid.resized[0] - height
        assert 0 <= left <= grid.resized[1] - width
        assert min(height, width) == size
        for crop in range(crops):
            room = max(height, width) - size
            assert 0 <= views.crop_at(crop, room) <= room
        starts.append(grid.times[0])
    assert (np.diff(starts) >= 0).all()


def test_views_are_said_in_words():
    shape = Shape(32, 256, 256)
    assert str(Views(shape=shape)) == "1 center clip, 32×256×256"
    assert str(Views(shape=shape, clips=10)) == "10 clips, 32×256×256"
    assert str(Views(shape=shape, crops=3)) == "1 clip × 3 crops, 32×256×256"
    assert str(TEN_BY_THREE) == "10 clips × 3 crops, 32×256×256 of short side 256"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"clips": 0}, "at least 1"), ({"crops": 0}, "at least 1"), ({"short_side": 30}, "crops of 32 pixels need 32")],
)
def test_views_that_are_none_are_refused(wrong, said):
    with pytest.raises(DataError, match=said):
        Views(**{"shape": Shape(8, 32, 48), **wrong})


@pytest.mark.parametrize("workers", [0, 2])
def test_videos_shorter_than_a_clip_are_told_once_for_a_dataset(tmp_path, write_video, read_number, workers):
    for number in range(4):
        write_video(tmp_path / f"train/class{number % 2}/{number}.mp4", 3)
    grids = GridSampler(frames=32, size=48, stride=8, short="loop")
    dataset = VideoDataset(read_videos(tmp_path, "train"), grids)
    loader = partial(evaluation_loader, dataset, Views(shape=Shape(32, 48, 64)), batch=2, workers=workers)
    with pytest.warns(UserWarning, match="shorter than a clip") as told:
        batches = [batch.clips.clone() for _ in range(2) for batch in loader()]
    for clip in torch.cat(batches).numpy():
        assert [read_number(picture) for picture in clip] == ([0, 1, 2] * 11)[:32]
    (said,) = [str(each.message) for each in told if "shorter" in str(each.message)]
    assert str(tmp_path) in said
    assert "they are looped (sampling.short=hold or loop); the first is" in said
    assert said.endswith("0.mp4, 0.12 s")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, write_video):
    """Seven videos of 40 frames of 64 x 48 pixels; the third cannot be read."""
    root = tmp_path_factory.mktemp("views")
    for number in range(7):
        write_video(root / "train" / f"class{number % 2}" / f"{number}.mp4", 40)
    (root / "train/class0/4.mp4").write_bytes(b"no video")
    return VideoDataset(read_videos(root, "train"), GridSampler(frames=8, size=16, stride=1, short_side=(16, 20)))


def test_crops_are_cut_from_the_clip_that_all_of_them_share(dataset):
    item = dataset.videos.paths.index("class0/0.mp4")
    views = Views(shape=Shape(8, 16, 16), clips=3, crops=3)
    sample = dataset.view(item, views, 1)
    whole = dataset.center(item, Shape(8, 16, 21)).clip  # the resized picture, as its short side is 16
    assert sample.clip.shape == (24, 16, 16, 3)
    for crop, left in enumerate((0, 3, 5)):
        assert torch.equal(sample.clip[8 * crop : 8 * crop + 8], whole[:, :, left : left + 16])


def test_clips_show_the_frames_that_they_stand_for(dataset, read_number):
    item = dataset.videos.paths.index("class0/0.mp4")
    views = Views(shape=Shape(8, 48, 64), clips=3)
    for clip, first in enumerate((0, 16, 32)):
        shown = [read_number(picture) for picture in dataset.view(item, views, clip).clip.numpy()]
        assert shown == list(range(first, first + 8))


def test_a_view_may_be_written_where_it_is_wanted(dataset):
    views = Views(shape=Shape(8, 16, 16), clips=2, crops=3)
    for taken in (views, Views(shape=Shape(8, 16, 16))):
        memory = torch.zeros(3 * 8 * 16 * 16 * 3 + 5, dtype=torch.uint8)
        there = dataset.view(1, taken, 0, memory).clip
        assert there.data_ptr() == memory.data_ptr()
        assert torch.equal(there, dataset.view(1, taken, 0).clip)


@pytest.mark.parametrize(
    ("clips", "crops", "batch", "sizes"),
    [
        (1, 1, 3, [3, 3, 1]),
        (2, 1, 4, [4, 4, 4, 2]),
        (2, 3, 12, [12, 12, 12, 6]),
        (5, 1, 4, [2, 3] * 7),
        (5, 3, 4, [3] * 35),
        (4, 3, 100, [84]),
    ],
)
def test_batches_hold_whole_videos_or_equal_parts_of_one(dataset, clips, crops, batch, sizes):
    views = Views(shape=Shape(8, 16, 16), clips=clips, crops=crops)
    batches = list(evaluation_loader(dataset, views, batch=batch))
    assert [len(b.indices) + crops * len(b.replaced) for b in batches] == sizes
    seen = torch.cat([b.indices for b in batches]).tolist()
    bad = dataset.videos.paths.index("class0/4.mp4")
    assert seen == [video for video in range(7) if video != bad for _ in range(clips * crops)]
    assert [r.video for b in batches for r in b.replaced] == [bad] * clips
    assert all(b.clips.shape[1:] == (8, 16, 16, 3) for b in batches if len(b.indices))
    assert all(len(b.clips) == len(b.labels) == len(b.positions) for b in batches if len(b.indices))


@pytest.mark.parametrize(("clips", "crops", "batch"), [(1, 1, 2), (5, 3, 6), (2, 3, 12)])
@pytest.mark.parametrize("world", [2, 3, 9])
def test_ranks_share_the_very_batches_of_one(dataset, clips, crops, batch, world):
    views = Views(shape=Shape(8, 16, 16), clips=clips, crops=crops)
    alone = list(evaluation_loader(dataset, views, batch=batch))
    shares = [list(evaluation_loader(dataset, views, batch=batch, rank=rank, world=world)) for rank in range(world)]
    together = [batch for share in shares for batch in share]
    assert len(together) == len(alone)
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one.clips, other.clips)
        assert torch.equal(one.indices, other.indices)
        assert one.replaced == other.replaced


def test_workers_change_nothing(dataset):
    views = Views(shape=Shape(8, 16, 16), clips=5, crops=3)
    alone, pooled = (list(evaluation_loader(dataset, views, batch=6, workers=workers)) for workers in (0, 2))
    for one, other in zip(alone, pooled, strict=True):
        assert torch.equal(one.clips, other.clips)
        assert torch.equal(one.labels, other.labels)
        assert one.replaced == other.replaced
