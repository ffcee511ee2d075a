"""Clips of datasets whose lists say more than one label: times, several labels, folders of pictures."""

import pickle
from fractions import Fraction

import av
import numpy as np
import pytest
import torch

from vcycle.data import GridSampler, SampleRequest, VideoDataset, VideoError, VideoInfo, VideoList, loader, read_videos
from vcycle.data.images import ImageSource
from vcycle.errors import DataError
from vcycle.plan import Baseline, Shape, constant

SHAPE = Shape(8, 48, 64)
GRIDS = GridSampler(frames=8, size=48, stride=1)


def request(index, position=0, shape=SHAPE):
    return SampleRequest(index, shape, (0, 0, position))


def numbers(clip, read_number):
    return [read_number(frame) for frame in clip.numpy()]


@pytest.fixture(scope="module")
def film(tmp_path_factory, write_video):
    return write_video(tmp_path_factory.mktemp("film") / "film.mp4", 100, rate=25)


def limited(film, *spans):
    """One entry a span, all of the same film of 100 frames, 25 a second."""
    return VideoList(
        root=film.parent,
        paths=[film.name] * len(spans),
        labels=[0] * len(spans),
        classes=("run",),
        source=film.parent,
        spans=[time for span in spans for time in span],
    )


@pytest.mark.parametrize(
    ("span", "first", "last"),
    [((1, 2), 25, 49), ((0, 1), 0, 24), ((3.2, 60), 80, 99), ((1.01, 1.99), 26, 49), ((0, float("inf")), 0, 99)],
)
def test_clips_lie_inside_the_span_of_their_entry(film, read_number, span, first, last):
    dataset = VideoDataset(limited(film, span), GRIDS)
    seen = [numbers(dataset[request(0, position)].clip, read_number) for position in range(25)]
    assert all(np.diff(clip).tolist() == [1] * 7 for clip in seen)
    assert first <= min(map(min, seen)) <= first + (last - first) // 4
    assert last - (last - first) // 4 <= max(map(max, seen)) <= last
    middle = numbers(dataset.center(0, SHAPE).clip, read_number)
    assert abs(sum(middle) / 8 - (first + last) / 2) <= 1


def test_a_span_shorter_than_a_clip_holds_its_last_frame(film, read_number):
    dataset = VideoDataset(limited(film, (1, 1.12), (1.01, 1.02)), GRIDS)
    assert numbers(dataset[request(0)].clip, read_number) == [25, 26, 27, 27, 27, 27, 27, 27]
    assert numbers(dataset.center(0, SHAPE).clip, read_number) == [25, 26, 27, 27, 27, 27, 27, 27]
    assert numbers(dataset.center(1, SHAPE).clip, read_number) == [25] * 8


def test_a_fraction_of_the_video_is_a_fraction_of_the_span(film, read_number):
    dataset = VideoDataset(limited(film, (1, 2)), GridSampler(frames=5, size=48, span=(1, 1)))
    assert numbers(dataset[request(0, 3, Shape(5, 48, 64))].clip, read_number) == [27, 32, 37, 42, 47]


def test_a_video_that_is_over_before_its_span_is_a_bad_video(film):
    dataset = VideoDataset(limited(film, (10, 20), (0, 1)), GRIDS)
    (replaced,) = dataset[request(0)].replaced
    assert (replaced.video, replaced.replacement) == (0, 1)
    assert replaced.cause == "4.00 s long: ends before its span from 10 s"
    with pytest.raises(VideoError, match="ends before its span from 10 s"):
        dataset.center(0, SHAPE)


def test_a_window_of_frames_of_uneven_times_keeps_their_times():
    info = VideoInfo(times=np.array([0, 0.1, 0.5, 0.6, 2.0]), duration=2.5, height=4, width=4)
    part, first = info.window(0.1, 1.0)
    assert (first, part.duration) == (1, pytest.approx(0.9))
    assert part.times == pytest.approx([0, 0.4, 0.5])
    part, first = info.window(1.0, 1.5)
    assert (first, part.times.tolist(), part.duration) == (3, [0], pytest.approx(0.9))
    assert info.window(2.6, 3)[0].frames == 0


def test_batches_of_a_multi_label_set_have_a_one_at_each_label(film):
    videos = VideoList(
        root=film.parent,
        paths=[film.name] * 4,
        labels=[2, 0, 2, 1, 1],
        label_starts=[0, 3, 3, 4, 5],
        classes=("a", "b", "c"),
        source=film.parent,
    )
    dataset = VideoDataset(videos, GridSampler(frames=2, size=16))
    expected = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 0]], dtype=torch.float32)
    sample = dataset.center(0, Shape(2, 16, 16))
    assert (sample.label.dtype, sample.label.tolist()) == (np.float32, [1, 0, 1])
    plan = constant(Baseline(batch=4, frames=2, size=16, clips=4, epochs=1, lr=0.1))
    for workers in (0, 2):
        (batch,) = loader(dataset, plan, workers=workers)
        assert batch.labels.dtype == torch.float32
        assert torch.equal(batch.labels, expected[batch.indices])


@pytest.mark.parametrize("span", [(), (1.0, 3.0)])
def test_a_clip_to_train_on_has_the_labels_that_hold_during_it_and_one_to_evaluate_those_of_the_video(
    film, read_number, span
):
    times = [(0, 0.7), (0.5, 2.02), (2.5, 9), (1.5, 1.6)]  # 25 frames a second
    videos = VideoList(
        root=film.parent,
        paths=[film.name],
        labels=[0, 1, 2, 0],
        label_starts=[0, 4],
        label_spans=[time for pair in times for time in pair],
        classes=("a", "b", "c"),
        source=film.parent,
        spans=span,
    )
    dataset = VideoDataset(videos, GRIDS)
    seen = set()
    for position in range(40):
        sample = dataset[request(0, position)]
        shown = numbers(sample.clip, read_number)
        first, last = shown[0] / 25, shown[-1] / 25  # from when on the frames are on display, for 1/25 s
        named = list(zip((0, 1, 2, 0), times, strict=True))
        sure = {label for label, (start, end) in named if start <= last and first + 0.04 <= end}
        may = {label for label, (start, end) in named if start <= last + 0.04 and first <= end}
        found = set(np.flatnonzero(sample.label).tolist())
        assert sure <= found <= may, (shown, span)
        seen.add(tuple(sorted(found)))
    assert len(seen) > 2
    assert dataset.center(0, SHAPE).label.tolist() == [1, 1, 1]


ENCODERS = {".jpg": ("mjpeg", "yuvj420p"), ".png": ("png", "rgb24"), ".webp": ("libwebp", "yuv420p")}


def write_picture(path, pixels):
    codec, form = ENCODERS[path.suffix]
    encoder = av.CodecContext.create(codec, "w")
    encoder.height, encoder.width, encoder.pix_fmt, encoder.time_base = *pixels.shape[:2], form, Fraction(1, 12)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=form)
    frame.pts = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)]))


@pytest.fixture(params=ENCODERS)
def pictures(request, tmp_path, draw_number):
    """Two videos of 30 numbered pictures, twelve a second; the names are not padded with zeros."""
    for number in range(30):
        write_picture(tmp_path / f"a/{number + 1}{request.param}", draw_number(number))
        write_picture(tmp_path / f"b c/img_{number + 1:05}{request.param}", draw_number(100 + number))
    (tmp_path / "a/notes.txt").write_text("no picture")
    return VideoList(
        root=tmp_path, paths=["a", "b c"], labels=[0, 1], classes=("x", "y"), source=tmp_path, frame_rate=12
    )


def test_folders_of_pictures_are_videos(pictures, read_number):
    source = ImageSource(pictures)
    assert (source.info(0).frames, source.info(0).duration, source.info(0).fps) == (30, 2.5, 12)
    assert (source.info(1).height, source.info(1).width) == (48, 64)
    dataset = VideoDataset(pictures, GridSampler(frames=8, size=48, stride=2))
    assert isinstance(dataset.source, ImageSource)
    for index, first in ((0, 0), (1, 100)):
        clip = numbers(dataset[request(index, 3)].clip, read_number)
        assert np.diff(clip).tolist() == [2] * 7
        assert first <= clip[0] <= first + 15
    small = dataset.center(0, Shape(3, 24, 24)).clip
    assert small.shape == (3, 24, 24, 3)
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again.center(0, Shape(3, 24, 24)).clip, small)


def test_without_antialiasing_pictures_are_sampled_not_averaged(pictures):
    averaged, skipped = (
        VideoDataset(pictures, GridSampler(frames=8, size=48, antialias=on)).center(0, Shape(4, 12, 16)).clip
        for on in (True, False)
    )
    assert averaged.shape == skipped.shape
    assert not torch.equal(averaged, skipped)


def test_a_bad_picture_shows_the_one_before_it_and_is_counted(pictures, read_number):
    names = sorted((pictures.root / "b c").iterdir())
    names[0].write_bytes(b"")
    names[10].write_bytes(names[10].read_bytes()[:60])
    names[11].unlink()
    names[11].mkdir()
    sample = VideoDataset(pictures, GridSampler(frames=30, size=48)).center(1, Shape(30, 48, 64))
    shown = numbers(sample.clip, read_number)
    assert shown == [101, *range(101, 110), 109, 109, *range(112, 130)]
    assert sample.fault == f"{pictures.root / 'b c'}: 3 of 30 frames cannot be decoded"


def test_a_folder_without_a_picture_is_a_bad_video(pictures):
    for path in (pictures.root / "a").iterdir():
        path.write_bytes(b"")
    dataset = VideoDataset(pictures, GRIDS)
    (replaced,) = dataset[request(0)].replaced
    assert replaced.cause.startswith("none of 30 pictures can be decoded")
    for path in (pictures.root / "a").iterdir():
        path.unlink()
    with pytest.raises(VideoError, match=r"a: no pictures; supported: \.bmp \.jpeg \.jpg \.png \.webp$"):
        VideoDataset(pictures, GRIDS).center(0, SHAPE)
    (pictures.root / "a").rmdir()
    with pytest.raises(VideoError, match="a: No such file or directory"):
        VideoDataset(pictures, GRIDS).center(0, SHAPE)


def test_pictures_need_a_frame_rate(film):
    with pytest.raises(DataError, match=r"frame_rate=None: folders of pictures need a rate above 0"):
        ImageSource(limited(film, (0, 1)))


def test_a_film_of_kinetics_shows_the_seconds_that_its_list_names(film, tmp_path, read_number):
    (tmp_path / "train").mkdir()
    (tmp_path / "train/filmfilmfil.mp4").symlink_to(film)
    text = "label,youtube_id,time_start,time_end,split\nrun,filmfilmfil,1,2,train\nsit,filmfilmfil,3,4,train\n"
    (tmp_path / "train.csv").write_text(text)
    dataset = VideoDataset(read_videos(tmp_path, "train"), GridSampler(frames=5, size=48))
    first, second = (dataset.center(item, Shape(5, 48, 64)) for item in (0, 1))
    assert (numbers(first.clip, read_number), first.label) == ([27, 32, 37, 42, 47], 0)
    assert (numbers(second.clip, read_number), second.label) == ([77, 82, 87, 92, 97], 1)
