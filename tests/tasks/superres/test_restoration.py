import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from vcycle.data import VideoError
from vcycle.errors import DataError
from vcycle.tasks.superres import (
    ClipPairs,
    Measured,
    Measuring,
    PairedDataset,
    Protocol,
    Restoration,
    charbonnier,
    clip_quality,
    imresize,
    quality_of,
    restore_each,
    to_uint8,
)
from vcycle.tasks.superres import measuring as evaluation
from vcycle.tasks.superres.models.clips import chunked
from vcycle.tasks.superres.objective import video_of
from vcycle.tasks.superres.pairs.clips import ClipInfo


class Enlarge(nn.Module):
    """Each pixel four times as large, by a factor; of all frames, or of the center one of a window."""

    def __init__(self, window=None, factor=1.0):
        super().__init__()
        self.window = window
        self.factor = nn.Parameter(torch.tensor(factor))
        self.seen = []

    def outputs(self, frames):
        return range(frames) if self.window is None else range(frames // 2, frames // 2 + 1)

    def forward(self, video, *, mirrored=False):
        self.seen.append((tuple(video.shape), mirrored))
        kept = video if self.window is None else video[:, video.shape[1] // 2][:, None]
        return self.factor * kept.repeat_interleave(4, -1).repeat_interleave(4, -2)


def pair(frames=6, batch=2):
    low = torch.randint(0, 256, (batch, frames, 5, 6, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return low, low.repeat_interleave(4, -2).repeat_interleave(4, -3)


@pytest.mark.parametrize("window", [None, 5])
def test_the_loss_is_that_of_the_frames_that_the_network_gives(window):
    low, high = pair(5)
    assert Restoration().loss(Enlarge(window), low, high).item() == pytest.approx(1e-6, rel=1e-3)
    truth = high if window is None else high[:, 2:3]
    expected = charbonnier(truth.float() / 255 * 0.9, truth.float() / 255)
    assert Restoration().loss(Enlarge(window, 0.9), low, high).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_loss_turns_into_a_line_where_it_is_told_to():
    low, high = pair(5)
    assert Restoration(epsilon=0.03).loss(Enlarge(), low, high).item() == pytest.approx(0.03, rel=1e-3)


def test_a_mirrored_clip_is_told_to_the_network():
    model = Enlarge()
    Restoration(mirrored=True).predict(model, pair()[0])
    assert model.seen == [((2, 6, 3, 5, 6), True)]


def test_labels_are_no_truth():
    Restoration().check(pair()[1])
    with pytest.raises(DataError, match=r"targets of shape \(4,\); accepted: high-resolution frames"):
        Restoration().check(torch.zeros(4))


class Store:
    """Clips in memory; one of them may be unreadable."""

    def __init__(self, count, scale, bad=(), frames=3):
        self.names = [f"clip{number}" for number in range(count)]
        self._scale, self._bad, self._frames = scale, bad, frames
        self.held = self.most = 0
        """Frames that are held by whoever read them, now and at most."""

    def __len__(self):
        return len(self.names)

    def path(self, item):
        return self.names[item]

    def info(self, item):
        if item in self._bad:
            raise VideoError(self.names[item], "is no clip")
        return ClipInfo(frames=self._frames, height=5 * self._scale, width=6 * self._scale)

    def read(self, item, frames, box=None):
        low = np.random.default_rng(item).integers(256, size=(self._frames, 5, 6, 3), dtype=np.uint8)[list(frames)]
        pixels = low.repeat(self._scale, 1).repeat(self._scale, 2)
        self.held += len(frames)
        self.most = max(self.most, self.held)
        weakref.finalize(pixels, self._let_go, len(frames))
        return pixels

    def _let_go(self, frames):
        self.held -= frames


def dataset(count=4, bad=(), frames=3):
    high, low = (Store(count, scale, bad * (scale > 1), frames) for scale in (4, 1))
    return PairedDataset(ClipPairs(high=high, low=low, source="memory"))


CPU = torch.device("cpu")


def measured(model, clips, **how):
    found = list(restore_each(model, clips, range(len(clips)), device=CPU, measuring=Measuring(**how)))
    return found, quality_of(found, Measuring(**how))


def test_equal_frames_are_counted_and_not_infinite_and_the_protocol_is_beside_the_number():
    _, quality = measured(Enlarge(), dataset())
    assert (quality.samples, quality.frames, quality.identical, quality.unreadable) == (4, 12, 12, 0)
    assert quality.psnr == float("inf")
    assert quality.protocol == "RGB, all frames, whole clips"
    _, quality = measured(
        Enlarge(factor=0.9), dataset(), protocol=Protocol(channels="y", frames="center"), mirrored=True
    )
    assert (quality.samples, quality.frames, quality.identical) == (4, 4, 0)
    assert quality.protocol == "Y channel, center frame, whole clips, mirrored"
    assert quality.headline == f"PSNR {quality.psnr:.2f} dB (bicubic {quality.bicubic_psnr:.2f} dB)"


@pytest.mark.parametrize("window", [None, 3])
def test_chunks_restore_what_whole_clips_do(window):
    whole, _ = measured(Enlarge(window, 0.9), dataset())
    chunks, quality = measured(Enlarge(window, 0.9), dataset(), chunk=2, overlap=1)
    assert chunks == whole
    assert quality.protocol == "RGB, all frames, chunks of 2 + 2 × 1 frames"


def test_a_mirrored_clip_is_restored_with_its_mirror_image_and_both_are_averaged():
    class Rising(Enlarge):
        """Adds more to later frames: over a clip and its mirror image as much to each."""

        def forward(self, video, *, mirrored=False):
            ramp = torch.arange(video.shape[1]).view(1, -1, 1, 1, 1) - (video.shape[1] - 1) / 2
            return super().forward(video, mirrored=mirrored) + 0.001 * ramp * (1 if mirrored else 0)

    model = Rising()
    _, quality = measured(model, dataset(1), mirrored=True)
    assert model.seen == [((1, 6, 3, 5, 6), True)]
    assert quality.identical == 3


@pytest.mark.parametrize("how", [{}, {"mirrored": True}], ids=["plain", "mirrored"])
@pytest.mark.parametrize(("length", "overlap"), [(1, 0), (2, 1), (3, 2), (4, 0), (40, 3)])
def test_chunks_that_are_measured_as_they_come_are_those_of_the_clip_with_its_mirror_image(how, length, overlap):
    class Mean(Enlarge):
        """Each frame with the mean of all that it is given with."""

        def forward(self, video, *, mirrored=False):
            return super().forward((video + video.mean(dim=1, keepdim=True)) / 2)

    clips = dataset(1, frames=13)
    low = video_of(clips.whole(0).lr)
    low = torch.cat([low, low.flip(0)]) if how else low
    wanted = torch.stack(list(chunked(Mean(), low, length=length, overlap=overlap)))
    if how:
        wanted = (wanted[:13] + wanted[13:].flip(0)) / 2
    wanted = clip_quality(to_uint8(wanted), clips.whole(0).hr.movedim(-1, -3), Protocol())
    (found,), _ = measured(Mean(), clips, chunk=length, overlap=overlap, **how)
    assert found.quality == wanted


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_with_chunks_memory_does_not_grow_with_the_frames_of_a_clip(window, mirrored):
    most = []
    for frames in (40, 400):
        clips, model = dataset(1, frames=frames), Enlarge(window, 0.9)
        _, quality = measured(model, clips, chunk=6, overlap=2, mirrored=mirrored)
        assert quality.frames == frames
        given = max(shape[1] for shape, _ in model.seen)
        most.append((given, clips.pairs.high.most, clips.pairs.low.most))
    assert most[0] == most[1]
    assert most[0][0] <= 6 + 2 * 2
    assert most[0][1] <= 60


def test_bicubic_stands_beside_the_number_and_is_computed_once_for_each_clip(monkeypatch):
    clips, calls = dataset(2), []
    monkeypatch.setattr(
        evaluation, "imresize", lambda pixels, scale: calls.append(len(pixels)) or imresize(pixels, scale)
    )
    known = {}
    for factor in (0.9, 0.8):
        found = list(
            restore_each(Enlarge(factor=factor), clips, range(2), device=CPU, measuring=Measuring(), bicubic=known)
        )
    assert calls == [3, 3]
    expected = []
    for number in range(2):
        pair = clips.whole(number)
        enlarged, truth = (frames.movedim(-1, -3) for frames in (imresize(pair.lr, 4), pair.hr))
        expected.append(clip_quality(enlarged, truth, Protocol()).psnr)
    assert [clip.bicubic_psnr for clip in found] == [known[0], known[1]] == expected
    assert quality_of(found, Measuring()).bicubic_psnr == sum(expected) / 2


def test_a_network_below_bicubic_is_warned_of_and_one_above_is_not():
    worse, better = (measured(Enlarge(factor=factor), dataset())[1] for factor in (0.3, 1.0))
    below = worse.bicubic_psnr - worse.psnr
    assert f"the model is {below:.2f} dB below bicubic interpolation ({worse.psnr:.2f} against" in worse.warning
    assert better.warning is None
    assert replace(worse, bicubic_psnr=None).warning is None


def test_a_clip_that_cannot_be_read_is_left_out_and_counted():
    found, quality = measured(Enlarge(factor=0.9), dataset(4, bad=(2,)))
    assert [type(one) is Measured for one in found] == [True, True, False, True]
    assert (found[2].path, found[2].cause) == ("clip2", "is no clip")
    assert (quality.samples, quality.unreadable) == (3, 1)
    with pytest.raises(DataError, match="none of the 1 clips of the evaluation can be read"):
        measured(Enlarge(), dataset(1, bad=(0,)))


@pytest.mark.parametrize("how", [{}, {"chunk": 2, "overlap": 1}, {"mirrored": True}])
@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_output_that_is_not_numbers_is_refused_and_not_measured_as_black(how, factor):
    with pytest.raises(DataError, match=r"clip0: the model's output is not finite: .* or too large for fp32"):
        measured(Enlarge(factor=factor), dataset(), **how)


@pytest.mark.parametrize(
    ("window", "how", "every"),
    [(None, {}, 3), (3, {}, 1), (None, {"chunk": 2, "overlap": 1}, 1), (None, {"chunk": 1, "mirrored": True}, 1)],
)
def test_it_is_told_how_many_frames_are_done_as_early_as_that_is_known(window, how, every):
    told = []
    clips = dataset(3, bad=(1,))
    measuring = Measuring(**how)
    found = restore_each(
        Enlarge(window), clips, range(3), device=CPU, measuring=measuring, progress=lambda *done: told.append(done)
    )
    assert told == []
    list(found)
    assert list(dict.fromkeys(told)) == [(done, 6) for done in range(0, 7, every)]


def test_the_model_is_left_in_the_mode_in_which_it_came():
    model = Enlarge().train()
    measured(model, dataset(1))
    assert model.training


def test_four_clips_on_eight_ranks_are_each_measured_once():
    from vcycle.plan import rank_slice

    shares = [rank_slice(4, 1, rank, 8) for rank in range(8)]
    assert sorted(item for share in shares for item in share) == [0, 1, 2, 3]
