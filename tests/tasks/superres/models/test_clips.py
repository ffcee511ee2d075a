"""Whole clips: every frame is restored, and chunks give what the whole gives."""

import pytest
import torch

from vcycle.errors import PlanError
from vcycle.tasks.superres.models.basicvsr.network import BasicVSR
from vcycle.tasks.superres.models.clips import chunked, restore, window_frames
from vcycle.tasks.superres.models.edvr.network import EDVR


class Reaching:
    """Restores each frame as the mean of those that are at most ``reach`` away; remembers how long clips were."""

    window = None

    def __init__(self, reach):
        self.reach = reach
        self.lengths = []

    def outputs(self, frames):
        return range(frames)

    def __call__(self, video, *, mirrored=False):
        count = video.shape[1]
        self.lengths.append(count)
        means = [video[:, max(0, i - self.reach) : i + self.reach + 1].mean(1) for i in range(count)]
        return torch.stack(means, 1)


@pytest.mark.parametrize(
    ("index", "expected"),
    [(0, [4, 3, 0, 1, 2]), (1, [4, 0, 1, 2, 3]), (50, [48, 49, 50, 51, 52]), (98, [96, 97, 98, 99, 95]),
     (99, [97, 98, 99, 96, 95])],
)  # fmt: skip
def test_windows_at_the_ends_take_frames_from_their_other_side(index, expected):
    # Facts on super-resolution, section 2.3: "reflection_circle" over 100 frames.
    assert window_frames(index, 100, 5) == expected


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
def test_windows_of_clips_that_are_shorter_lie_within_them(frames):
    for index in range(frames):
        places = window_frames(index, frames, 5)
        assert places[2] == index
        assert all(0 <= place < frames for place in places)


@pytest.mark.parametrize("frames", [1, 4, 7])
def test_edvr_restores_every_frame_of_a_clip_of_any_length(video, frames):
    model = EDVR(channels=8, front_blocks=1, back_blocks=1, head_channels=8, zero_last=False).eval()
    clip = video(1, frames, 8, 8)
    restored = restore(model, clip)
    assert restored.shape == (1, frames, 3, 32, 32)
    assert torch.allclose(restored[:, -1:], model(clip[:, window_frames(frames - 1, frames, 5)]), atol=1e-6)


@pytest.mark.parametrize("count", range(1, 13))
def test_chunks_equal_the_whole_where_the_overlap_covers_the_reach(count):
    clip = torch.randn(count, 3, 2, 2)
    for reach in (0, 1, 3):
        whole = restore(Reaching(reach), clip[None])[0]
        for length in (1, 2, 5, 20):
            for overlap in (reach, reach + 2):
                model = Reaching(reach)
                parts = list(chunked(model, iter(clip), length=length, overlap=overlap))
                assert torch.allclose(torch.stack(parts), whole, atol=1e-6)
                assert max(model.lengths) <= length + 2 * overlap


def test_chunks_of_edvr_equal_the_whole(video):
    model = EDVR(channels=8, front_blocks=1, back_blocks=1, head_channels=8, zero_last=False).eval()
    clip = video(1, 9, 8, 8)
    for length, overlap in ((1, 2), (3, 2), (4, 3)):
        parts = torch.stack(list(chunked(model, clip[0], length=length, overlap=overlap)))
        assert torch.allclose(parts, restore(model, clip)[0], atol=1e-6)


def test_chunks_of_basicvsr_equal_the_whole_within_an_overlap_as_long_as_the_clip(video):
    model = BasicVSR(blocks=1, channels=8, head_channels=8, zero_last=False).eval()
    clip = video(1, 6, 16, 16)
    whole = restore(model, clip)[0]
    assert torch.allclose(torch.stack(list(chunked(model, clip[0], length=2, overlap=6))), whole, atol=1e-5)
    short = torch.stack(list(chunked(model, clip[0], length=2, overlap=1)))
    assert short.shape == whole.shape
    assert not torch.equal(short, whole)


def test_a_clip_without_end_is_read_only_as_far_as_needed():
    read = []

    def endless():
        while True:
            read.append(1)
            yield torch.zeros(3, 2, 2)

    model = Reaching(2)
    frames = chunked(model, endless(), length=4, overlap=3)
    assert not read
    for index in range(100):
        next(frames)
        assert len(read) <= max(index - index % 4, 3) + 4 + 3
    assert set(model.lengths) == {4 + 2 * 3}


def test_nothing_comes_of_nothing():
    assert list(chunked(Reaching(1), [], length=4, overlap=1)) == []


@pytest.mark.parametrize(("length", "overlap"), [(0, 1), (1, -1)])
def test_impossible_chunks_are_refused_at_once(length, overlap):
    with pytest.raises(PlanError, match=f"chunks of {length} frames with {overlap} beside them"):
        chunked(Reaching(1), [], length=length, overlap=overlap)


def test_frames_that_change_their_size_are_refused():
    frames = [torch.zeros(3, 2, 2), torch.zeros(3, 2, 4)]
    with pytest.raises(PlanError, match=r"shapes \[\(3, 2, 2\), \(3, 2, 4\)\]"):
        list(chunked(Reaching(1), frames, length=4, overlap=1))
