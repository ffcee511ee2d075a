"""The study's clips, as tiles: ten clips of DAVIS to train on, two to validate, eight and Vid4 to test.

Usage: python prepare.py DATA OUT   DATA holds davis/ and vid4/. DAVIS is halved, which takes away what its compression
left; Vid4's frames are as they are.
"""

import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from vcycle.tasks.superres.pairs.clips import find_clips
from vcycle.tasks.superres.pairs.prepare import prepare_frames
from vcycle.tasks.superres.pairs.resized import ResizedClips

HALF = Fraction(1, 2)
VALIDATED = ("drift-chicane", "libby")
TESTED = ("camel", "car-roundabout", "cows", "dance-twirl", "goat", "parkour", "scooter-black", "soapbox")


def linked(places: Iterable[Path], folder: Path) -> Path:
    """A folder of links to clips."""
    folder.mkdir()
    for place in places:
        (folder / place.name).symlink_to(place)
    return folder


data, out = (Path(argument).resolve() for argument in sys.argv[1:])
davis = {place.name: place for place in sorted((data / "davis").iterdir()) if place.is_dir()}
trained = [place for name, place in davis.items() if name not in (*VALIDATED, *TESTED)]
with TemporaryDirectory() as made:
    here = Path(made)
    train = linked(trained, here / "train")
    prepare_frames(train, out / "train", resize=HALF)
    prepare_frames(linked([davis[name] for name in VALIDATED], here / "val"), out / "val", resize=HALF)
    halved = ResizedClips(find_clips(linked([davis[name] for name in TESTED], here / "whole")), HALF)
    test = linked(sorted(place for place in (data / "vid4").iterdir() if place.is_dir()), here / "test")
    for item, name in enumerate(halved.names):
        (test / name).mkdir()
        for number, pixels in enumerate(halved.read(item, range(halved.info(item).frames))):
            Image.fromarray(pixels).save(test / name / f"{number:05}.png")
    prepare_frames(test, out / "test")
