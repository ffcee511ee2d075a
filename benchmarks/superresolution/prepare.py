"""The study's clips, as tiles: six scenes halved, five to train on and one to validate, and two clips of Vid4 to test.

Usage: python prepare.py SCENES VID4 OUT   Halving takes away what the scenes' compression left in them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from vcycle.data.superres.clips import ClipInfo, VideoClips, find_clips
from vcycle.data.superres.degrade import Degradation
from vcycle.data.superres.layouts import ClipPairs
from vcycle.data.superres.prepare import prepare_frames, write_store

VALIDATED = "bedroom.mp4"
FIRST_FRAMES, FRAMES = (20, 100, 180), 15
HALF = Degradation(scale=2)


class Halved:
    """Pieces of videos at half their size, as a store of clips has them."""

    def __init__(self, videos: VideoClips, pieces: dict[str, tuple[int, range]]) -> None:
        self.videos = videos
        self.names = tuple(pieces)
        self.pieces = tuple(pieces.values())

    def __len__(self) -> int:
        return len(self.pieces)

    def path(self, item: int) -> Path:
        """File of the video."""
        return self.videos.path(self.pieces[item][0])

    def info(self, item: int) -> ClipInfo:
        """Length, and half the video's size."""
        video, frames = self.pieces[item]
        info = self.videos.info(video)
        height, width = HALF.low((info.height, info.width))
        return ClipInfo(frames=len(frames), height=height, width=width)

    def read(self, item: int, frames: Sequence[int], box: tuple[int, int, int, int] | None = None) -> np.ndarray:
        """Frames by number, whole or the box of each."""
        video, chosen = self.pieces[item]
        info = self.info(item)
        pixels = torch.from_numpy(self.videos.read(video, [chosen[frame] for frame in frames]))
        top, left, height, width = box or (0, 0, info.height, info.width)
        return HALF.whole(pixels)[:, top : top + height, left : left + width].numpy()


scenes, vid4, out = (Path(argument) for argument in sys.argv[1:])
videos = find_clips(scenes)
whole = {name: (item, range(videos.info(item).frames)) for item, name in enumerate(videos.names)}
train = {name.removesuffix(".mp4"): piece for name, piece in whole.items() if name != VALIDATED}
video, frames = whole[VALIDATED]
validated = {f"bedroom-{first}": (video, frames[first : first + FRAMES]) for first in FIRST_FRAMES}
for split, pieces in (("train", train), ("val", validated)):
    write_store(ClipPairs(high=Halved(videos, pieces), source=scenes), out / split)
prepare_frames(vid4, out / "test")
