"""Whether clips are what they are taken for: every frame readable, low resolution made as it is said to be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from vcycle.data.video import VideoError
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.layouts import ClipPairs
from vcycle.tasks.superres.pairs.store import TiledClips

__all__ = ["SAME_DEGRADATION", "agreement", "check_clips", "survey"]

SAME_DEGRADATION = 50.0
"""PSNR in dB above which two low-resolution pictures differ by rounding alone."""

_FRAMES_AT_ONCE = 8
_MOST_CLIPS = 256
"""Clips whose length and size are asked for before training, spread over the set: some seconds' worth."""


def check_clips(pairs: ClipPairs, progress: Callable[[int, int], None] | None = None) -> Iterator[VideoError]:
    """Read every frame at every resolution that exists, and yield what is wrong with clips that have a fault.

    Those of a store are compared with what was written.

    Args:
        pairs: The clips.
        progress: Called with the number of clips done and their total.
    """
    if isinstance(pairs.high, TiledClips):
        yield from pairs.high.store.check(progress)
        return
    for item in range(len(pairs)):
        try:
            frames = pairs.info(item).frames
            for clips in (pairs.high, *([] if pairs.low is None else [pairs.low])):
                for first in range(0, frames, _FRAMES_AT_ONCE):
                    clips.read(item, range(first, min(first + _FRAMES_AT_ONCE, frames)))
        except VideoError as error:
            yield error
        if progress is not None:
            progress(item + 1, len(pairs))


def survey(pairs: ClipPairs, most: int = _MOST_CLIPS) -> dict[int, ClipInfo | VideoError]:
    """Length and size of clips that are spread over the set, or why they cannot be read; no frame is decoded.

    Args:
        pairs: The clips.
        most: How many to look at.
    """
    found: dict[int, ClipInfo | VideoError] = {}
    for item in sorted({place * len(pairs) // most for place in range(most)}):
        try:
            found[item] = pairs.info(item)
        except VideoError as error:
            found[item] = error
    return found


def agreement(pairs: ClipPairs, item: int = 0) -> float:
    """PSNR in dB of a clip's own low-resolution frames against those that its degradation would make.

    Below ``SAME_DEGRADATION`` they were made in another way, or are another clip's: a network that is trained on
    them learns something else than what it is compared with. Looks at the middle frame; infinite if equal.

    Raises:
        VideoError: If the clip cannot be read.
    """
    if pairs.low is None:
        return math.inf
    info = pairs.info(item)
    middle = [info.frames // 2]
    made = pairs.degradation.whole(torch.from_numpy(pairs.high.read(item, middle, (0, 0, info.height, info.width))))
    error = float(np.square(made.numpy().astype(np.float64) - pairs.low.read(item, middle)).mean())
    return 10 * math.log10(255**2 / error) if error else math.inf
