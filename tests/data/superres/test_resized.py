"""Clips made smaller before they are prepared."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vcycle.errors import DataError
from vcycle.tasks.superres.pairs.clips import ClipInfo, find_clips
from vcycle.tasks.superres.pairs.degrade import Degradation, imresize
from vcycle.tasks.superres.pairs.layouts import read_pairs
from vcycle.tasks.superres.pairs.prepare import prepare_frames
from vcycle.tasks.superres.pairs.resized import ResizedClips, resized_pairs
from vcycle.tasks.superres.pairs.store import TileStore

Pixels = NDArray[np.uint8]
HALF = Fraction(1, 2)


@pytest.fixture
def clips(tmp_path: Path, write_clip: Callable[..., Path], noise: Callable[..., Pixels]) -> Path:
    """Two clips: sides that halve evenly, and sides that do not."""
    write_clip(tmp_path / "source" / "even", noise(4, 48, 64, 1))
    write_clip(tmp_path / "source" / "odd", noise(4, 37, 51, 2))
    return tmp_path / "source"


def test_frames_are_those_of_matlabs_bicubic_whole_or_the_box_of_each(clips: Path) -> None:
    source = find_clips(clips)
    halved = ResizedClips(source, HALF)
    assert (list(halved.names), len(halved)) == (["even", "odd"], 2)
    even = torch.from_numpy(source.read(0, [1, 3]))
    assert np.array_equal(halved.read(0, [1, 3]), Degradation(scale=2).whole(even).numpy())
    assert np.array_equal(halved.read(0, [1, 3], (3, 5, 7, 9)), halved.read(0, [1, 3])[:, 3:10, 5:14])
    third = ResizedClips(source, Fraction(1, 3))
    for resized, info in (
        (halved, ClipInfo(frames=4, height=19, width=26)),
        (third, ClipInfo(frames=4, height=13, width=17)),
    ):
        assert resized.info(1) == info
        assert resized.read(1, [0]).shape == (1, info.height, info.width, 3)


def test_a_store_holds_smaller_frames_and_low_resolution_ones_of_these(tmp_path: Path, clips: Path) -> None:
    prepared = prepare_frames(clips, tmp_path / "store", scale=2, resize=HALF)
    assert prepared.store.resized == HALF
    pairs = read_pairs(tmp_path / "store")
    high = imresize(torch.from_numpy(find_clips(clips).read(0, range(4))), HALF)
    assert np.array_equal(pairs.high.read(0, range(4)), high.numpy())
    assert pairs.low is not None
    assert np.array_equal(pairs.low.read(0, range(4)), Degradation(scale=2).whole(high).numpy())


def test_a_store_goes_on_only_with_frames_of_the_same_size(tmp_path: Path, clips: Path) -> None:
    prepare_frames(clips, tmp_path / "store", scale=2, resize=HALF)
    before = (tmp_path / "store" / "frames.json").read_bytes()
    prepare_frames(clips, tmp_path / "store", scale=2, resize=HALF)
    assert (tmp_path / "store" / "frames.json").read_bytes() == before
    for other in (None, Fraction(51, 100)):
        with pytest.raises(DataError, match="name another folder"):
            prepare_frames(clips, tmp_path / "store", scale=2, resize=other)
    prepare_frames(clips, tmp_path / "whole", scale=2)
    assert "resized" not in json.loads((tmp_path / "whole" / "frames.json").read_text())
    assert TileStore(tmp_path / "whole").resized is None
    with pytest.raises(DataError, match="name another folder"):
        prepare_frames(clips, tmp_path / "whole", scale=2, resize=HALF)


def test_frames_are_not_enlarged_and_do_not_leave_low_resolution_frames_behind(tmp_path: Path, clips: Path) -> None:
    for factor in (Fraction(1), Fraction(2), Fraction(0)):
        with pytest.raises(DataError, match="above 0 and below 1"):
            resized_pairs(read_pairs(clips), factor)
    prepare_frames(clips, tmp_path / "store", scale=2)
    with pytest.raises(DataError, match="do not fit the existing low-resolution frames"):
        resized_pairs(read_pairs(tmp_path / "store"), HALF)
