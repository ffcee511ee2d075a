import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcycle.data import GridSampler, SampleRequest, VideoInfo, Views
from vcycle.errors import DataError
from vcycle.plan import Shape

KINETICS = GridSampler(frames=32, size=224, stride=2, short_side=(256, 340), flip=True)
VIDEO = VideoInfo.uniform(300, 256, 340, fps=30)


def grids_of(sampler, shape, info=VIDEO, count=400):
    return [sampler.train(SampleRequest(0, shape, (0, 0, position)), info) for position in range(count)]


def center(sampler, shape, info):
    return sampler.view(Views(shape=shape), 0, info)


def strides_of(grids):
    return np.array([np.diff(grid.times).mean() for grid in grids])


@given(
    frames=st.integers(1, 40),
    height=st.integers(1, 256),
    width=st.integers(1, 256),
    video=st.tuples(st.integers(1, 500), st.integers(8, 400), st.integers(8, 400)),
    position=st.integers(0, 10**6),
)
def test_a_grid_always_fits_its_shape_and_its_video(frames, height, width, video, position):
    shape, info = Shape(frames, height, width), VideoInfo.uniform(*video, fps=25)
    for grid in (KINETICS.train(SampleRequest(0, shape, (0, 0, position)), info), center(KINETICS, shape, info)):
        top, left, *size = grid.crop
        assert len(grid.times) == frames
        assert size == [height, width]
        assert 0 <= top <= grid.resized[0] - height
        assert 0 <= left <= grid.resized[1] - width
        assert (np.diff(grid.times) > 0).all()
        assert grid.times[0] >= 0


# Wu et al. 2020, section 4: a random stride in [τ, τ·T/t]; with τ = 2 at 30 fps and T = 32.
@pytest.mark.parametrize(("frames", "longest"), [(32, 2), (16, 4), (8, 8)])
def test_strides_are_real_valued_and_uniform_from_the_baselines_to_its_whole_span(frames, longest):
    strides = strides_of(grids_of(KINETICS, Shape(frames, 224, 224))) * 30
    assert strides.min() >= 2 - 1e-9
    assert strides.max() <= longest + 1e-9
    if longest > 2:
        assert len(set(strides.round(6))) > 390
        assert strides.mean() == pytest.approx((2 + longest) / 2, rel=0.05)
        assert strides.min() < 2 + 0.05 * (longest - 2)
        assert strides.max() > longest - 0.05 * (longest - 2)


# Kinetics: 256 and 340 at 224 pixels; the least shrinks with the clip, the largest does not.
@pytest.mark.parametrize(("size", "least"), [(224, 256), (158, 180.6), (112, 128)])
def test_short_sides_range_from_the_scaled_least_to_the_unscaled_largest(size, least):
    sides = np.array([min(grid.resized) for grid in grids_of(KINETICS, Shape(8, size, size))])
    assert least - 1 <= sides.min() < least + 3
    assert 337 < sides.max() <= 340
    assert sides.mean() == pytest.approx((least + 340) / 2, rel=0.03)


def test_starts_and_crops_reach_every_edge_and_half_the_clips_are_flipped():
    grids = grids_of(KINETICS, Shape(32, 112, 112))
    span = 32 * 2 / 30
    starts = np.array([grid.times[0] for grid in grids])
    assert starts.min() < 0.1
    assert starts.max() > 10 - span - 0.1
    tops = np.array([grid.crop[0] / (grid.resized[0] - 112) for grid in grids])
    lefts = np.array([grid.crop[1] / (grid.resized[1] - 112) for grid in grids])
    for places in (tops, lefts):
        assert places.min() < 0.02
        assert places.max() > 0.98
        assert places.mean() == pytest.approx(0.5, abs=0.05)
    assert sum(grid.flip for grid in grids) == pytest.approx(200, abs=40)


def test_a_grid_depends_on_its_request_alone():
    first, second = (KINETICS.train(SampleRequest(4, Shape(8, 80, 80), (0, 3, 9)), VIDEO) for _ in range(2))
    assert first.times.tolist() == second.times.tolist()
    assert (first.resized, first.crop, first.flip) == (second.resized, second.crop, second.flip)


def test_turning_the_flip_off_changes_nothing_else():
    still = GridSampler(frames=32, size=224, stride=2, short_side=(256, 340))
    for with_flip, without in zip(
        grids_of(KINETICS, Shape(8, 112, 112), count=20), grids_of(still, Shape(8, 112, 112), count=20), strict=True
    ):
        assert with_flip.crop == without.crop
        assert with_flip.times.tolist() == without.times.tolist()
        assert not without.flip


def test_a_stride_at_a_rate_of_its_own_means_the_same_seconds_in_every_video():
    sampler = GridSampler(frames=16, size=64, stride=2, fps=10)
    for fps in (10, 30):
        grid = center(sampler, Shape(16, 64, 64), VideoInfo.uniform(20 * fps, 64, 64, fps=fps))
        assert np.diff(grid.times) == pytest.approx([0.2] * 15)
    own = GridSampler(frames=16, size=64, stride=2)
    assert np.diff(center(own, Shape(16, 64, 64), VideoInfo.uniform(300, 64, 64, fps=10)).times)[0] == pytest.approx(
        0.2
    )


def test_a_span_is_a_fraction_of_the_video_at_any_number_of_frames():
    sampler = GridSampler(frames=16, size=64, span=(0.8, 1.0))
    for frames in (16, 8):
        spans = strides_of(grids_of(sampler, Shape(frames, 64, 64))) * frames / VIDEO.duration
        assert 0.8 <= spans.min() < 0.81
        assert 0.99 < spans.max() <= 1.0 + 1e-9


def test_a_field_is_a_fraction_of_the_picture_at_any_size():
    sampler = GridSampler(frames=16, size=64, field=(0.75, 1.0))
    for size in (64, 32):
        fields = np.array([size / min(grid.resized) for grid in grids_of(sampler, Shape(8, size, size))])
        assert 0.73 < fields.min() < 0.77
        assert fields.max() == 1.0


def test_without_a_stride_the_baselines_clip_spans_the_whole_video():
    sampler = GridSampler(frames=10, size=64)
    info = VideoInfo.uniform(100, 64, 64)
    assert center(sampler, Shape(10, 64, 64), info).times.tolist() == [5 + 10 * k for k in range(10)]
    spans = strides_of(grids_of(sampler, Shape(5, 64, 64), info)) * 5
    assert 50 <= spans.min() < 52
    assert 98 < spans.max() <= 100


def test_the_center_grid_is_the_middle_of_the_video_and_of_the_picture():
    grid = center(KINETICS, Shape(32, 224, 224), VIDEO)
    assert grid.resized == (256, 340)
    assert grid.crop == (16, 58, 224, 224)
    assert not grid.flip
    assert grid.times.mean() == pytest.approx(5.0)
    assert np.diff(grid.times) == pytest.approx([2 / 30] * 31)
    larger = KINETICS.view(Views(shape=Shape(32, 224, 224), short_side=320), 0, VIDEO)
    assert larger.resized == (320, 425)
    assert larger.crop == (48, 101, 224, 224)


def test_the_short_side_of_a_smaller_center_clip_shrinks_with_it():
    assert center(KINETICS, Shape(32, 112, 112), VIDEO).resized == (128, 170)


def test_consecutive_frames_are_taken_at_stride_one():
    sampler = GridSampler(frames=8, size=64, stride=1)
    for position in range(50):
        grid = sampler.train(SampleRequest(0, Shape(8, 64, 64), (0, 0, position)), VIDEO)
        assert (np.diff(VIDEO.frame_at(grid.times)) == 1).all()


def test_a_clip_longer_than_its_video_holds_the_last_frame():
    short = VideoInfo.uniform(5, 256, 340, fps=30)
    frames = short.frame_at(center(KINETICS, Shape(8, 224, 224), short).times)
    assert frames.tolist() == [4] * 8 or frames[-1] == 4
    assert frames[0] < 5


def frames_shown(sampler, info, frames=32):
    """What clips show that are drawn to train on, and that of an evaluation."""
    shape = Shape(frames, 32, 32)
    drawn = grids_of(sampler, shape, info, count=20)
    assert all(grid.short for grid in drawn)
    return [info.frame_at(grid.times).tolist() for grid in (*drawn, center(sampler, shape, info))]


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 8, 15])
def test_a_video_shorter_than_two_strides_shows_each_of_its_frames(frames):
    info = VideoInfo.uniform(frames, 32, 32, fps=25)
    there = list(range(frames))
    for shown in frames_shown(GridSampler(frames=32, size=32, stride=8), info):
        assert shown == there + [frames - 1] * (32 - frames)
    for shown in frames_shown(GridSampler(frames=32, size=32, stride=8, short="loop"), info):
        assert shown == (there * 32)[:32]


def test_a_short_video_of_uneven_times_shows_each_of_its_frames():
    info = VideoInfo(times=np.array([0, 0.3, 0.31, 0.8]), duration=0.9, height=32, width=32)
    for short, then in (("hold", [3, 3]), ("loop", [0, 1])):
        sampler = GridSampler(frames=6, size=32, stride=8, fps=10, short=short)
        for shown in frames_shown(sampler, info, frames=6):
            assert shown == [0, 1, 2, 3, *then]


def test_of_a_short_video_with_more_frames_than_the_clip_they_are_taken_evenly():
    info = VideoInfo.uniform(12, 32, 32, fps=25)
    for short in ("hold", "loop"):
        for shown in frames_shown(GridSampler(frames=4, size=32, stride=8, short=short), info, frames=4):
            assert shown == [1, 4, 7, 10]


def test_a_video_that_ends_within_the_clip_keeps_the_stride_and_is_held_or_looped():
    info = VideoInfo.uniform(40, 32, 32, fps=25)
    (*_, held) = frames_shown(GridSampler(frames=8, size=32, stride=8), info, frames=8)
    assert held == [4, 12, 20, 28, 36, 39, 39, 39]
    (*_, looped) = frames_shown(GridSampler(frames=8, size=32, stride=8, short="loop"), info, frames=8)
    assert looped == [4, 12, 20, 28, 36, 4, 12, 20]
    info = VideoInfo.uniform(44, 32, 32, fps=25)
    (*_, looped) = frames_shown(GridSampler(frames=8, size=32, stride=8, short="loop"), info, frames=8)
    assert looped == [4, 12, 20, 28, 36, 0, 8, 16]


def test_a_video_as_long_as_the_clip_is_not_short():
    info = VideoInfo.uniform(64, 32, 32, fps=25)
    for short in ("hold", "loop"):
        grid = center(GridSampler(frames=8, size=32, stride=8, short=short), Shape(8, 32, 32), info)
        assert not grid.short
        assert info.frame_at(grid.times).tolist() == list(range(4, 64, 8))


def test_portrait_videos_and_oblong_shapes_are_covered():
    grid = center(KINETICS, Shape(8, 64, 128), VideoInfo.uniform(30, 640, 360, fps=30))
    assert grid.resized[0] >= 64
    assert grid.resized[1] >= 128
    assert grid.resized[0] / grid.resized[1] == pytest.approx(640 / 360, rel=0.02)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"frames": 0}, "at least 1"),
        ({"stride": 2, "span": (0.5, 1)}, "exclude each other"),
        ({"short_side": (64, 70), "field": (0.5, 1)}, "exclude each other"),
        ({"stride": 0}, "positive"),
        ({"fps": 30}, "needs a stride"),
        ({"short": "mirror"}, "short='mirror': hold or loop is accepted"),
        ({"span": (0.9, 0.5)}, "ascending"),
        ({"span": (0.5, 1.5)}, "ascending"),
        ({"field": (0.0, 1.0)}, "ascending"),
        ({"short_side": (60, 80)}, "from 64"),
    ],
)
def test_values_that_make_no_grid_are_refused(wrong, said):
    with pytest.raises(DataError, match=said):
        GridSampler(**{"frames": 16, "size": 64, **wrong})
