"""Low-resolution frames: golden values of MATLAB's imresize, and crops that equal the whole frame's."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import find_clips
from vcycle.tasks.superres.pairs.degrade import DEGRADATIONS, Degradation, imresize

# MATLAB's kernel at whole factors: an exact filter of whole numbers (facts on super-resolution, 5.1).
QUARTER = [-7, -45, -75, -49, 93, 399, 745, 987, 987, 745, 399, 93, -49, -75, -45, -7]
HALF = [-3, -9, 29, 111, 111, 29, -9, -3]


def quarter(pixels: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Bicubic ×1/4 of one picture of one or three colors."""
    picture = torch.from_numpy(pixels.astype(np.uint8))
    return imresize(picture.reshape(1, *picture.shape[:2], -1), Fraction(1, 4))[0].numpy().squeeze()


def filtered(pixels: NDArray[np.uint8], taps: list[int], factor: int) -> NDArray[np.uint8]:
    """The same filter in exact integers."""
    margin = len(taps) // 2 - factor // 2
    result = np.pad(pixels.astype(np.int64), ((0, 0), (margin, margin), (margin, margin), (0, 0)), mode="symmetric")
    for axis in (1, 2):
        outputs = pixels.shape[axis] // factor
        picked = [result.take(range(k, k + factor * outputs, factor), axis=axis) for k in range(len(taps))]
        result = sum(tap * part for tap, part in zip(taps, picked, strict=True))
    total = sum(taps) ** 2
    return ((2 * result + total) // (2 * total)).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(("taps", "factor"), [(QUARTER, 4), (HALF, 2)])
def test_bicubic_is_matlabs_filter_to_the_last_bit(taps: list[int], factor: int) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(2, 48, 80, 3), dtype=np.uint8)
    pixels[1] = np.where(pixels[1] > 127, 255, 0)  # overshoots everywhere
    made = imresize(torch.from_numpy(pixels), Fraction(1, factor)).numpy()
    assert np.array_equal(made, filtered(pixels, taps, factor))


def test_bicubic_golden_values_of_a_ramp() -> None:
    # Golden A of the facts, in [0, 1].
    i, j = np.ogrid[:16, :16]
    golden = [
        [0.106656, 0.316900, 0.522415, 0.733188],
        [0.219864, 0.430106, 0.634691, 0.860200],
        [0.330553, 0.540439, 0.775037, 0.689747],
        [0.443761, 0.658411, 0.859011, 0.286864],
    ]
    assert np.array_equal(quarter((7 * i + 13 * j) % 256), np.round(255 * np.array(golden)))


def test_bicubic_golden_values_in_three_colors() -> None:
    # Golden B of the facts.
    i, j, c = np.ogrid[:32, :48, :3]
    made = quarter((7 * i + 13 * j + 29 * c) % 256)
    assert made.shape == (8, 12, 3)
    assert made[0, 0].tolist() == [27, 56, 85]
    assert made[3, 5].tolist() == [118, 147, 180]
    assert int(made.sum(dtype=np.int64)) == 37075


def test_bicubic_of_a_size_that_does_not_divide_is_rounded_up() -> None:
    # Golden C of the facts, ×140.
    golden = [
        [0.145700, 0.175157, 0.204799, 0.225593],
        [0.571481, 0.600938, 0.630580, 0.651374],
        [0.864206, 0.893663, 0.923305, 0.944099],
    ]
    assert np.array_equal(quarter(np.arange(140).reshape(10, 14)), np.round(140 * np.array(golden)))


def test_bicubic_enlarges_and_clips_what_overshoots() -> None:
    # Golden A enlarged ×4: row 0 begins -.009191 -.006005 .000716 .012167 .026405, [10, 20] is .294118.
    i, j = np.ogrid[:16, :16]
    pixels = torch.from_numpy(((7 * i + 13 * j) % 256).astype(np.uint8))
    made = imresize(pixels[None, :, :, None], 4)[0, :, :, 0]
    assert made.shape == (64, 64)
    assert made[0, :5].tolist() == [0, 0, 0, 3, 7]
    assert made[10, 20] == 75
    assert made.max() == 255


def test_blur_and_subsample_keeps_each_fourth_pixel_of_a_gaussian_blur() -> None:
    pixels = np.random.default_rng(1).integers(256, size=(1, 40, 56, 3), dtype=np.uint8)
    blurred = pixels.astype(np.float64)
    for axis in (1, 2):
        blurred = ndimage.gaussian_filter1d(blurred, 1.6, axis=axis, radius=6, mode="mirror")
    made = Degradation(kind="bd").whole(torch.from_numpy(pixels)).numpy()
    assert np.array_equal(made, np.round(blurred[:, ::4, ::4]).astype(np.uint8))


@given(
    kind=st.sampled_from(DEGRADATIONS),
    scale=st.sampled_from([2, 3, 4]),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    flat=st.booleans(),
    data=st.data(),
)
def test_a_degraded_crop_equals_the_crop_of_the_degraded_frame(
    kind: str, scale: int, size: tuple[int, int], flat: bool, data: st.DataObject
) -> None:
    degradation = Degradation(kind=kind, scale=scale)
    height, width = size[0] + scale - 1, size[1] + scale - 1
    pixels = torch.from_numpy(np.random.default_rng(height).integers(256, size=(2, height, width, 3), dtype=np.uint8))
    if flat:  # sums that lie exactly between two values, where the order of adding could decide
        pixels = pixels // 128 + 100
    low = degradation.whole(pixels)
    top, left = data.draw(st.integers(0, low.shape[1] - 1)), data.draw(st.integers(0, low.shape[2] - 1))
    tall, wide = data.draw(st.integers(1, low.shape[1] - top)), data.draw(st.integers(1, low.shape[2] - left))
    a, b, c, d = degradation.region((top, left, tall, wide), (height, width))
    made = degradation.crop(pixels[:, a : a + c, b : b + d], (top, left, tall, wide), (height, width))
    assert torch.equal(made, low[:, top : top + tall, left : left + wide])


def test_a_crop_needs_its_own_pixels_and_a_margin() -> None:
    top, left, height, width = Degradation().region((0, 40, 64, 64), (720, 1280))
    assert (top, left) == (0, 153)
    assert height == 4 * 64 + 7
    assert width == 4 * 64 + 14


def test_sides_that_the_scale_does_not_divide_lose_their_last_pixels() -> None:
    pixels = torch.from_numpy(np.random.default_rng(2).integers(256, size=(1, 43, 50, 3), dtype=np.uint8))
    assert torch.equal(Degradation().whole(pixels), Degradation().whole(pixels[:, :40, :48]))


@pytest.mark.parametrize(("clip", "published"), [("calendar", 20.39), ("walk", 26.10)])
def test_bicubic_frames_of_vid4_have_the_psnr_that_is_published(shared_data: Path, clip: str, published: float) -> None:
    # Vid4, bicubic ×4, Y, as papers report it over the full clips; here are 15 frames of each.
    clips = find_clips(shared_data / "vid4" / clip)
    truth = torch.from_numpy(clips.read(0, range(clips.info(0).frames)))
    enlarged = imresize(Degradation().whole(truth), 4)
    luma = torch.tensor([65.481, 128.553, 24.966], dtype=torch.float64) / 255
    errors = ((truth.double() - enlarged.double()) @ luma).square().mean(dim=(1, 2))
    psnr = float((10 * torch.log10(255**2 / errors)).mean())
    assert psnr == pytest.approx(published, abs=0.15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "lanczos"}, "degradation 'lanczos' is unknown: must be bicubic or bd"),
        ({"scale": 1}, "scale 1: must be a whole number from 2 to 16"),
    ],
)
def test_a_degradation_that_does_not_exist_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Degradation(**settings)  # type: ignore[arg-type]


def test_a_picture_smaller_than_one_pixel_is_refused() -> None:
    with pytest.raises(DataError, match="3 × 40 pixels is too small for a scale of 4"):
        Degradation().whole(torch.zeros(1, 40, 3, 3, dtype=torch.uint8))
