"""Checks of what lies on disk, before a training relies on it."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vcycle.tasks.superres.pairs.check import SAME_DEGRADATION, agreement, check_clips
from vcycle.tasks.superres.pairs.degrade import Degradation
from vcycle.tasks.superres.pairs.layouts import read_pairs

Write = Callable[..., Path]
Noise = Callable[..., NDArray[np.uint8]]


def test_every_damaged_frame_is_found(tmp_path: Path, write_clip: Write, noise: Noise) -> None:
    for clip in range(3):
        write_clip(tmp_path / "high" / str(clip), noise(10, 16, 24, clip))
        write_clip(tmp_path / "low" / str(clip), noise(10, 4, 6, clip))
    (tmp_path / "high" / "0" / "00000009.png").write_bytes(b"")
    (tmp_path / "low" / "2" / "00000004.png").write_bytes(b"")
    told: list[tuple[int, int]] = []
    pairs = read_pairs(tmp_path / "high", low=tmp_path / "low")
    found = [Path(error.path).relative_to(tmp_path) for error in check_clips(pairs, lambda *of: told.append(of))]
    assert found == [Path("high/0/00000009.png"), Path("low/2/00000004.png")]
    assert told == [(1, 3), (2, 3), (3, 3)]
    (tmp_path / "low" / "1").rename(tmp_path / "elsewhere")
    assert [error.cause for error in check_clips(pairs)][1] == "No such file or directory"


@pytest.mark.parametrize(("made", "said", "same"), [("bicubic", "bicubic", True), ("bd", "bicubic", False)])
def test_low_resolution_made_in_another_way_shows(
    tmp_path: Path, write_clip: Write, made: str, said: str, same: bool
) -> None:
    rows, columns = np.ogrid[:64, :96]
    picture = (127 + 100 * np.sin(rows / 5) * np.cos(columns / 7)).astype(np.uint8)
    high = np.repeat(picture[None, :, :, None], 3, axis=3)
    write_clip(tmp_path / "high" / "a", high)
    write_clip(tmp_path / "low" / "a", Degradation(kind=made).whole(torch.from_numpy(high)).numpy())
    pairs = read_pairs(tmp_path / "high", low=tmp_path / "low", degradation=Degradation(kind=said))
    assert (agreement(pairs) > SAME_DEGRADATION) is same
    assert agreement(read_pairs(tmp_path / "high")) == math.inf
