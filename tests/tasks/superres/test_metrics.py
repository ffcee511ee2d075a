"""PSNR and SSIM are those of the published tables; golden values from the facts on super-resolution, section 5.2."""

import math

import numpy as np
import pytest
import torch

from vcycle.errors import DataError
from vcycle.tasks.superres import ClipQuality, Protocol, clip_quality, mean_quality, psnr, ssim, to_uint8
from vcycle.tasks.superres.metrics import luma


@pytest.fixture(scope="module")
def pair():
    """The golden pair, whose channels are blue, green, red there; a clip of one frame each."""
    i, j, c = np.ogrid[:32, :48, :3]
    first = (7 * i + 13 * j + 29 * c) % 256
    second = np.clip(first + ((5 * i + 3 * j + 11 * c) % 17 - 8), 0, 255)
    assert (first.sum(), second.sum()) == (593152, 593158)
    return tuple(
        torch.from_numpy(x[..., ::-1].astype(np.uint8)).permute(2, 0, 1)[None].contiguous() for x in (first, second)
    )


@pytest.mark.parametrize(
    ("crop", "channels", "ratio", "similarity"),
    [
        (0, "rgb", 34.415475, 0.985517),
        (0, "y", 41.762108, 0.995768),
        (4, "rgb", 34.411983, 0.985690),
        (4, "y", 41.789001, 0.995752),
    ],
)
def test_metrics_are_those_of_the_published_tables(pair, crop, channels, ratio, similarity):
    assert psnr(*pair, channels=channels, crop=crop).item() == pytest.approx(ratio, abs=3e-6)
    assert ssim(*pair, channels=channels, crop=crop).item() == pytest.approx(similarity, abs=5e-7)
    quality = clip_quality(*pair, Protocol(channels=channels, crop=crop))
    assert (quality.psnr, quality.ssim) == pytest.approx((ratio, similarity), abs=3e-6)


def test_red_and_blue_are_not_the_same(pair):
    exchanged = [x.flip(1) for x in pair]
    assert psnr(*exchanged, channels="y").item() == pytest.approx(41.758485, abs=3e-6)
    assert ssim(*exchanged, channels="y").item() == pytest.approx(0.995780, abs=5e-7)


def test_luma_goes_from_16_to_235_and_is_not_rounded():
    colors = torch.tensor([[200, 20, 10], [255, 255, 255], [0, 0, 0]], dtype=torch.uint8)
    values = luma(colors[:, :, None, None])
    assert values.flatten().tolist() == pytest.approx([78.4193, 235, 16], abs=5e-5)


def test_frames_are_rounded_half_to_even_as_they_are_written():
    assert to_uint8(torch.tensor([0.5, 1.5, 2.5, -25, 306]) / 255).tolist() == [0, 2, 2, 0, 255]
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_uint8(every / 255), every)


def test_a_metric_is_one_number_a_frame(pair):
    clip, truth = torch.cat((pair[0], pair[1])), torch.cat((pair[1], pair[1]))
    assert psnr(clip, truth).tolist() == pytest.approx([34.415475, math.inf])
    assert ssim(clip, truth).tolist() == pytest.approx([0.985517, 1.0], abs=1e-6)


def test_equal_frames_are_counted_and_do_not_make_the_mean_infinite(pair):
    clip, truth = torch.cat((pair[0], pair[1])), torch.cat((pair[1], pair[1]))
    quality = clip_quality(clip, truth, Protocol())
    assert (quality.frames, quality.identical) == (2, 1)
    assert quality.psnr == pytest.approx(34.415475)
    assert quality.ssim == pytest.approx((1 + 0.985517) / 2, abs=1e-6)


def test_a_clip_that_is_black_throughout_counts_in_ssim_alone():
    black = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    dark = clip_quality(black, black, Protocol(channels="y"))
    assert dark == ClipQuality(psnr=math.inf, ssim=1.0, frames=2, identical=2)
    other = ClipQuality(psnr=30.0, ssim=0.8, frames=3, identical=0)
    assert mean_quality([dark, other]) == ClipQuality(psnr=30.0, ssim=pytest.approx(0.9), frames=5, identical=2)
    assert mean_quality([dark]).psnr == math.inf


def test_clips_of_different_length_count_alike():
    clips = [ClipQuality(psnr=p, ssim=s, frames=n, identical=0) for p, s, n in ((20, 0.5, 1), (30, 0.7, 9))]
    assert mean_quality(clips) == ClipQuality(psnr=25.0, ssim=pytest.approx(0.6), frames=10, identical=0)


def test_clips_of_different_lengths_are_refused_whatever_counts(pair):
    longer = torch.cat([pair[1]] * 2)
    for protocol in (Protocol(), Protocol(frames="center")):
        with pytest.raises(DataError, match=r"output \(1, 3, 32, 48\) and target \(2, 3, 32, 48\); accepted: equal"):
            clip_quality(pair[0], longer, protocol)


def test_the_center_frame_alone_counts_where_the_protocol_says_so(pair):
    truth = pair[1].repeat(7, 1, 1, 1)
    clip = truth.clone()
    clip[3] = pair[0]
    quality = clip_quality(clip, truth, Protocol(frames="center"))
    assert (quality.frames, quality.identical) == (1, 0)
    assert quality.psnr == pytest.approx(34.415475)


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (Protocol(), "RGB, all frames"),
        (Protocol(channels="y", frames="center"), "Y channel, center frame"),
        (Protocol(crop=4), "RGB, all frames, 4 pixels of each border left out"),
    ],
)
def test_a_protocol_says_what_it_is(protocol, words):
    assert str(protocol) == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": "yuv"}, "channels is 'yuv'; accepted: rgb, y"),
        ({"frames": "first"}, "frames is 'first'; accepted: all, center"),
        ({"crop": -1}, "crop is -1; accepted: 0 or more"),
    ],
)
def test_protocols_that_do_not_exist_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        Protocol(**options)


def test_what_cannot_be_compared_is_refused(pair):
    first, second = pair
    with pytest.raises(DataError, match="accepted: equal shapes"):
        psnr(first, second[..., 1:])
    with pytest.raises(DataError, match=r"accepted: uint8 \(T, 3, H, W\)"):
        psnr(first / 255, second / 255)
    with pytest.raises(DataError, match="nothing is left of 1 frames of 48 × 32 pixels with a crop of 16"):
        psnr(first, second, crop=16)
    with pytest.raises(DataError, match="48 × 10 pixels; accepted: at least 11 per side"):
        ssim(first[..., :10, :], second[..., :10, :])
    with pytest.raises(DataError, match="no clips"):
        mean_quality([])
