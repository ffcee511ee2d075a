"""Checks clips: every frame is readable, and low-resolution frames match their degradation."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from vcycle.data.video import VideoError
from vcycle.tasks.superres.pairs.clips import ClipInfo
from vcycle.tasks.superres.pairs.degrade import DEGRADATIONS
from vcycle.tasks.superres.pairs.layouts import ClipPairs
from vcycle.tasks.superres.pairs.store import TiledClips

__all__ = ["SAME_DEGRADATION", "agreement", "check_clips", "low_resolution", "survey"]

SAME_DEGRADATION = 50.0
"""PSNR in dB above which two low-resolution frames differ only by rounding."""

_FRAMES_AT_ONCE = 8
_MOST_CLIPS = 256
"""Maximum number of clips whose length and size are read before training, spread over the dataset; takes seconds."""


def check_clips(pairs: ClipPairs, progress: Callable[[int, int], None] | None = None) -> Iterator[VideoError]:
    """Read every frame at every stored resolution, and yield the faults.

    Clips of a tile store are verified by their checksums.

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


def survey(pairs: ClipPairs) -> dict[int, ClipInfo | VideoError]:
    """Length and size of some clips, spread over the dataset, or why they cannot be read; decodes no frames."""
    found: dict[int, ClipInfo | VideoError] = {}
    for item in sorted({place * len(pairs) // _MOST_CLIPS for place in range(_MOST_CLIPS)}):
        try:
            found[item] = pairs.info(item)
        except VideoError as error:
            found[item] = error
    return found


def agreement(pairs: ClipPairs, item: int = 0) -> float:
    """PSNR in dB between a clip's low-resolution frames and those computed by its degradation.

    Below ``SAME_DEGRADATION``, they have another degradation or belong to another clip, and results are not comparable.
    Compares the middle frame; infinite if equal.

    Raises:
        VideoError: if the clip cannot be read.
    """
    if pairs.low is None:
        return math.inf
    info = pairs.info(item)
    middle = [info.frames // 2]
    made = pairs.degradation.whole(torch.from_numpy(pairs.high.read(item, middle, (0, 0, info.height, info.width))))
    error = float(np.square(made.numpy().astype(np.float64) - pairs.low.read(item, middle)).mean())
    return 10 * math.log10(255**2 / error) if error else math.inf


def low_resolution(pairs: ClipPairs) -> str:
    """Describe the low-resolution frames of clips: computed by a degradation, or files that match one or none.

    Compares the middle frames of up to three readable clips: the first, the middle and the last.
    """
    own = pairs.degradation
    named = f"{own.kind} ×{own.scale}"
    if pairs.low is None:
        return named
    others = [replace(own, kind=kind) for kind in DEGRADATIONS if kind != own.kind]
    for degradation in (own, *others):
        found = _agreements(replace(pairs, degradation=degradation))
        if not found:
            return "given low-resolution files"
        if min(found) >= SAME_DEGRADATION:
            return f"{degradation.kind} ×{degradation.scale} (given files that match it)"
    kinds = " nor ".join(degradation.kind for degradation in (own, *others))
    return f"given files, made by neither {kinds} ×{own.scale} (PSNR {min(_agreements(pairs)):.1f} dB against {named})"


def _agreements(pairs: ClipPairs) -> list[float]:
    """The agreement of some readable clips."""
    found = []
    for item in sorted({0, len(pairs) // 2, len(pairs) - 1}):
        with contextlib.suppress(VideoError):
            found.append(agreement(pairs, item))
    return found
