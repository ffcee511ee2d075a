"""The study's clips, as tiles: six scenes halved, five to train on and one to validate, and two clips of Vid4 to test.

Usage: python prepare.py SCENES VID4 OUT   Halving takes away what the scenes' compression left in them.
"""

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from vcycle.tasks.superres.pairs.clips import ClipInfo, ClipStore, find_clips
from vcycle.tasks.superres.pairs.layouts import ClipPairs
from vcycle.tasks.superres.pairs.prepare import prepare_frames, write_store
from vcycle.tasks.superres.pairs.resized import resized_pairs

VALIDATED = "bedroom.mp4"
FIRST_FRAMES, FRAMES = (20, 100, 180), 15


class Pieces:
    """Some frames of some clips, as a store of clips has them."""

    def __init__(self, clips: ClipStore, pieces: dict[str, tuple[int, range]]) -> None:
        self.clips = clips
        self.names: Sequence[str] = tuple(pieces)
        self.pieces = tuple(pieces.values())

    def __len__(self) -> int:
        return len(self.pieces)

    def path(self, item: int) -> Path:
        """File of the clip."""
        return self.clips.path(self.pieces[item][0])

    def info(self, item: int) -> ClipInfo:
        """Length of the piece, and the clip's size."""
        clip, frames = self.pieces[item]
        info = self.clips.info(clip)
        return ClipInfo(frames=len(frames), height=info.height, width=info.width)

    def read(self, item: int, frames: Sequence[int], box: tuple[int, int, int, int] | None = None) -> np.ndarray:
        """Frames by number, whole or the box of each."""
        clip, chosen = self.pieces[item]
        return self.clips.read(clip, [chosen[frame] for frame in frames], box)


scenes, vid4, out = (Path(argument) for argument in sys.argv[1:])
videos = find_clips(scenes)
whole = {name: (item, range(videos.info(item).frames)) for item, name in enumerate(videos.names)}
train = {name.removesuffix(".mp4"): piece for name, piece in whole.items() if name != VALIDATED}
video, frames = whole[VALIDATED]
validated = {f"bedroom-{first}": (video, frames[first : first + FRAMES]) for first in FIRST_FRAMES}
for split, pieces in (("train", train), ("val", validated)):
    write_store(resized_pairs(ClipPairs(high=Pieces(videos, pieces), source=scenes), Fraction(1, 2)), out / split)
prepare_frames(vid4, out / "test")
