import random
from collections import namedtuple

import numpy as np
import pytest
import torch
from matplotlib.image import imsave

from vcycle.data import (
    GridSampler,
    PreparedSource,
    PrepareSettings,
    ResampledDataset,
    SampleRequest,
    VideoDataset,
    VideoError,
    VideoList,
    load_index,
    read_videos,
)
from vcycle.errors import DataError
from vcycle.plan import Shape

SHAPE = Shape(4, 24, 32)
GRIDS = GridSampler(frames=8, size=48, flip=True)


def request(index, position=0, shape=SHAPE, seed=0):
    return SampleRequest(index, shape, (seed, 0, position))


@pytest.fixture
def videos(tmp_path, write_video):
    for number, name in enumerate(("run/a.mp4", "run/b.mp4", "sit/c.mp4", "sit/d.mp4")):
        write_video(tmp_path / "set" / "train" / name, 20 + number)
    return read_videos(tmp_path / "set", "train")


def test_a_clip_has_the_shape_asked_for(videos):
    dataset = VideoDataset(videos, GRIDS)
    assert len(dataset) == 4
    for shape in (SHAPE, Shape(8, 48, 48), Shape(1, 16, 16), Shape(30, 48, 64)):
        sample = dataset[request(2, 17, shape)]
        assert sample.clip.shape == (*shape, 3)
        assert sample.clip.dtype == torch.uint8
        assert sample.clip.is_contiguous()
        assert (sample.label, sample.index, sample.position) == (1, 2, 17)
        assert sample.fault is None
        assert sample.replaced == ()


def test_a_request_gives_the_same_clip_whatever_was_read_before(videos):
    first, second = VideoDataset(videos, GRIDS), VideoDataset(videos, GRIDS)
    expected = [first[request(index, index)].clip for index in range(4)]
    for index in (3, 1, 0, 2):
        second[request(index, 99)]
        assert torch.equal(second[request(index, index)].clip, expected[index])
    assert not torch.equal(first[request(0, 1)].clip, expected[0])


def test_a_part_has_the_same_clips_under_numbers_of_its_own(videos):
    dataset = VideoDataset(videos, GRIDS)
    part = dataset.part([3, 1])
    assert len(part) == 2
    assert [part.name(item) for item in range(2)] == [dataset.name(3), dataset.name(1)]
    assert [part[request(item)].label for item in range(2)] == [1, 0]
    for item, whole in enumerate((3, 1)):
        assert torch.equal(part[request(item)].clip, dataset[request(whole)].clip)
        assert torch.equal(part.center(item, SHAPE).clip, dataset.center(whole, SHAPE).clip)


def test_frames_come_in_order_from_the_span_of_the_grid(videos, read_number):
    dataset = VideoDataset(videos, GridSampler(frames=8, size=48, stride=2))
    for position in range(10):
        clip = dataset[request(0, position, Shape(8, 48, 64))].clip
        numbers = [read_number(frame) for frame in clip.numpy()]
        assert np.diff(numbers).tolist() == [2] * 7


def test_half_the_clips_are_mirrored(videos, read_number):
    dataset = VideoDataset(videos, GridSampler(frames=8, size=48, flip=True))
    plain = VideoDataset(videos, GridSampler(frames=8, size=48))
    shape = Shape(8, 48, 64)
    mirrored = 0
    for position in range(20):
        clip, straight = dataset[request(1, position, shape)].clip, plain[request(1, position, shape)].clip
        assert torch.equal(clip, straight) or torch.equal(clip, straight.flip(2))
        mirrored += torch.equal(clip, straight.flip(2))
    assert 4 <= mirrored <= 16


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("form", ["files", "video", "array", "pictures"])
def test_a_clip_put_into_given_memory_is_the_same_clip(
    form, antialias, videos, video_set, prepare, draw_number, tmp_path
):
    grids = GridSampler(frames=8, size=48, flip=True, antialias=antialias)
    if form == "files":
        dataset = VideoDataset(videos, grids)
    elif form == "pictures":
        for number in range(12):
            imsave(tmp_path / f"{number}.png", draw_number(number))
        folder = VideoList(root=tmp_path, paths=["."], labels=[0], classes=("x",), source=tmp_path, frame_rate=12)
        dataset = VideoDataset(folder, grids)
    else:
        prepare(video_set, tmp_path / "out", PrepareSettings(to=form, levels=(48,)), workers=1)
        index = load_index(tmp_path / "out")
        dataset = VideoDataset(index.videos("train"), grids, source=PreparedSource(index, "train"))
    for shape in (Shape(8, 48, 48), Shape(4, 24, 32), Shape(1, 16, 16)):
        for position in range(6):
            asked = request(position % len(dataset), position, shape)
            memory = torch.full((dataset.sample_bytes(shape) + 5,), 77, dtype=torch.uint8)
            sample, plain = dataset.load_into(asked, memory), dataset[asked]
            assert torch.equal(sample.clip, plain.clip)
            assert sample.clip.data_ptr() == memory.data_ptr()
            assert memory[-5:].tolist() == [77] * 5
            assert (sample.label, sample.index, sample.fault) == (plain.label, plain.index, plain.fault)
            assert torch.equal(dataset.load_into(asked, memory[:10]).clip, plain.clip)  # no room: elsewhere


def test_without_antialiasing_pixels_are_skipped_not_averaged(videos):
    shape = Shape(4, 12, 16)
    averaged = VideoDataset(videos, GridSampler(frames=8, size=48)).center(0, shape).clip
    skipped = VideoDataset(videos, GridSampler(frames=8, size=48, antialias=False)).center(0, shape).clip
    assert averaged.shape == skipped.shape
    assert not torch.equal(averaged, skipped)
    assert (averaged.float() - skipped.float()).abs().mean() < 12


def test_the_center_clip_never_changes(videos, read_number):
    dataset = VideoDataset(videos, GridSampler(frames=5, size=48, flip=True))
    sample = dataset.center(0, Shape(5, 48, 64))
    assert [read_number(frame) for frame in sample.clip.numpy()] == [2, 6, 10, 14, 18]
    assert torch.equal(sample.clip, dataset.center(0, Shape(5, 48, 64)).clip)
    assert (sample.label, sample.index, sample.position) == (0, 0, -1)


def test_an_unreadable_video_is_replaced_by_a_keyed_draw_and_named(videos):
    videos.path(1).write_bytes(b"")
    samples = [VideoDataset(videos, GRIDS)[request(1, position)] for position in range(30)]
    again = [VideoDataset(videos, GRIDS)[request(1, position)] for position in range(30)]
    assert {sample.index for sample in samples} == {0, 2, 3}
    for sample, same in zip(samples, again, strict=True):
        assert sample.label == videos.labels[sample.index]
        (replaced,) = sample.replaced
        assert (replaced.position, replaced.video, replaced.replacement) == (sample.position, 1, sample.index)
        assert replaced.path == str(videos.path(1))
        assert replaced.cause
        assert torch.equal(sample.clip, same.clip)


def test_a_replacement_named_by_a_journal_gives_the_same_clip(videos):
    videos.path(1).write_bytes(b"")
    dataset = VideoDataset(videos, GRIDS)
    first = dataset[request(1, 5)]
    resumed = dataset[request(first.index, 5)]
    assert torch.equal(first.clip, resumed.clip)
    assert resumed.replaced == ()


def test_replacements_that_fail_too_are_all_named(videos):
    for item in (0, 1, 3):
        videos.path(item).unlink()
    sample = max((VideoDataset(videos, GRIDS)[request(0, p)] for p in range(20)), key=lambda s: len(s.replaced))
    assert sample.index == 2
    assert sorted(replaced.video for replaced in sample.replaced) == [0, 1, 3]


def test_a_dataset_without_a_readable_video_stops_the_run(videos):
    for item in range(4):
        videos.path(item).write_bytes(b"no video")
    with pytest.raises(DataError, match=r"4 videos in a row cannot be read, the last: .*mp4"):
        VideoDataset(videos, GRIDS)[request(0)]
    with pytest.raises(VideoError, match=r"a\.mp4"):
        VideoDataset(videos, GRIDS).center(0, SHAPE)


class Clips:
    """A user's dataset: clips whose pixels tell frame, row and column."""

    def __init__(self, layout="CTHW", dtype=torch.float32, wrap=lambda clip, index: (clip, index % 3)):
        self.layout, self.dtype, self.wrap = layout, dtype, wrap

    def __len__(self):
        return 6

    def __getitem__(self, index):
        t, h, w = torch.meshgrid(torch.arange(16), torch.arange(32), torch.arange(40), indexing="ij")
        clip = torch.stack([t, h, w]).to(self.dtype)
        return self.wrap(clip.permute(*("CTHW".index(axis) for axis in self.layout)).contiguous(), index)


DTYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_clip_of_any_type_is_resampled_as_floats_are_and_keeps_its_type(dtype, antialias):
    grids = GridSampler(frames=16, size=32, antialias=antialias)
    asked = request(4, 3, Shape(4, 16, 20))
    clip, _ = ResampledDataset(Clips(dtype=dtype), grids)[asked]
    exact, _ = ResampledDataset(Clips(), grids)[asked]
    assert clip.dtype == dtype
    assert clip.float() == pytest.approx(exact, abs=0.51 if not dtype.is_floating_point else 0.2)
    whole, _ = ResampledDataset(Clips(dtype=dtype), grids)[request(4, 3, Shape(16, 32, 40))]
    assert torch.equal(whole, Clips(dtype=dtype)[4][0])


@pytest.mark.parametrize("change", ["as it is", "backwards", "read-only"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.filterwarnings("error")
def test_a_clip_may_be_an_array(change, alone):
    def wrap(clip, index):
        array = clip.numpy()
        if change == "backwards":
            array = array[::-1]
        if change == "read-only":
            array.flags.writeable = False
        return array if alone else (array, index)

    asked = request(2, 0, Shape(4, 16, 20))
    given = ResampledDataset(Clips(wrap=wrap), GridSampler(frames=16, size=32))[asked]
    clip = given if alone else given[0]
    expected, _ = ResampledDataset(Clips(), GridSampler(frames=16, size=32))[asked]
    assert torch.equal(clip, expected.flip(0) if change == "backwards" else expected)


def test_an_array_of_no_numbers_is_refused():
    dataset = ResampledDataset(Clips(wrap=lambda clip, _: clip.numpy().astype(object)), GridSampler(frames=16, size=32))
    with pytest.raises(DataError, match="item 2: a clip must be numeric, not object"):
        dataset[request(2)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("layout", ["CTHW", "TCHW", "THWC"])
def test_a_plain_dataset_is_resampled_in_its_own_layout(layout, dtype):
    dataset = ResampledDataset(Clips(layout, dtype), GridSampler(frames=16, size=32), layout=layout)
    clip, label = dataset[request(4, 3, Shape(4, 16, 20))]
    assert label == 1
    assert clip.dtype == dtype
    assert [clip.shape[layout.index(axis)] for axis in "CTHW"] == [3, 4, 16, 20]
    time, row, column = clip.permute(*(layout.index(axis) for axis in "CTHW")).float()
    assert (time.diff(dim=0) >= 1).all()
    assert (row.diff(dim=1) >= 0).all()
    assert (column.diff(dim=2) >= 0).all()
    assert torch.equal(clip, dataset[request(4, 3, Shape(4, 16, 20))][0])


def test_at_the_baselines_shape_a_plain_dataset_is_untouched():
    dataset = ResampledDataset(Clips(), GridSampler(frames=16, size=32))
    clip, _ = dataset[request(0, 8, Shape(16, 32, 40))]
    assert torch.equal(clip, Clips()[0][0])


Named = namedtuple("Named", ["clip", "label", "name"])


def test_what_comes_with_a_clip_passes_through():
    grids = GridSampler(frames=16, size=32)
    named = ResampledDataset(Clips(wrap=lambda clip, index: Named(clip, index, "x")), grids)[request(2)]
    assert isinstance(named, Named)
    assert (named.label, named.name) == (2, "x")
    assert isinstance(ResampledDataset(Clips(wrap=lambda clip, index: [clip, 1]), grids)[request(2)], list)
    assert ResampledDataset(Clips(wrap=lambda clip, index: clip), grids)[request(2)].shape == (3, *SHAPE)


@pytest.mark.parametrize("wrap", [lambda clip, _: {"clip": clip}, lambda clip, _: (1, clip), lambda clip, _: clip[0]])
def test_items_without_a_clip_are_refused(wrap):
    with pytest.raises(DataError, match="item 2"):
        ResampledDataset(Clips(wrap=wrap), GridSampler(frames=16, size=32))[request(2)]
    with pytest.raises(DataError, match="CTHW, TCHW or THWC"):
        ResampledDataset(Clips(), GridSampler(frames=16, size=32), layout="HWC")


def test_random_choices_of_a_plain_dataset_are_keyed_and_leave_no_trace():
    def noisy(clip, index):
        return clip, (random.random(), float(np.random.rand()), float(torch.rand(())))

    dataset = ResampledDataset(Clips(wrap=noisy), GridSampler(frames=16, size=32))
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert dataset[request(0, 1)][1] == dataset[request(3, 1)][1] != dataset[request(0, 2)][1]
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


@pytest.mark.parametrize("meant", ["TCHW", "THWC"])
def test_a_clip_in_another_layout_than_is_said_is_refused_with_the_layout_that_is_meant(meant):
    dataset = ResampledDataset(Clips(meant), GridSampler(frames=16, size=32))
    with pytest.raises(DataError, match=rf"would have \d+ channels as CTHW: give layout='{meant}'"):
        dataset[SampleRequest(0, Shape(4, 16, 20), (0, 0, 0))]


def test_clips_of_many_channels_are_taken_where_no_layout_has_three():
    dataset = ResampledDataset(Features(), GridSampler(frames=16, size=32))
    assert dataset[SampleRequest(0, Shape(4, 16, 20), (0, 0, 0))].shape == (10, 4, 16, 20)


class Features(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.rand(10, 16, 32, 32)
