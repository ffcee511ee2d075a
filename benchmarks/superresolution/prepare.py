"""The study's clips, as tiles: 16 to train on (DAVIS, scenes), two to validate (DAVIS), ten to test (DAVIS, Vid4).

Usage: python prepare.py DATA OUT   DATA holds davis/, scenes/ and vid4/. DAVIS and the scenes are halved, which takes
away what their compression left; Vid4's frames are as they are.
"""

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from vcycle.tasks.superres.pairs.clips import find_clips
from vcycle.tasks.superres.pairs.prepare import prepare_frames
from vcycle.tasks.superres.pairs.resized import ResizedClips

VALIDATED = ("drift-chicane", "libby")
TESTED = ("camel", "car-roundabout", "cows", "dance-twirl", "goat", "parkour", "scooter-black", "soapbox")
MOST_FRAMES = 100
"""Of a scene: as many as REDS' clips have."""


def add_halved(source: Path, out: Path, takes: Callable[[str], bool] = lambda _: True) -> None:
    """Write clips of a folder at half their size, as folders of pictures."""
    clips = ResizedClips(find_clips(source), Fraction(1, 2))
    for item, name in enumerate(clips.names):
        if takes(name):
            folder = out / Path(name).stem
            folder.mkdir(parents=True)
            for number, pixels in enumerate(clips.read(item, range(min(clips.info(item).frames, MOST_FRAMES)))):
                Image.fromarray(pixels).save(folder / f"{number:05}.png")


data, out = (Path(argument).resolve() for argument in sys.argv[1:])
with TemporaryDirectory() as made:
    here = Path(made)
    add_halved(data / "davis", here / "train", lambda name: name not in (*VALIDATED, *TESTED))
    add_halved(data / "scenes", here / "train")
    add_halved(data / "davis", here / "val", VALIDATED.__contains__)
    add_halved(data / "davis", here / "test", TESTED.__contains__)
    for clip in sorted(place for place in (data / "vid4").iterdir() if place.is_dir()):
        (here / "test" / clip.name).symlink_to(clip)
    for split in ("train", "val", "test"):
        prepare_frames(here / split, out / split)
