"""Generates demo clips for super-resolution: two photographs under a moving camera, as numbered PNG files.

The photographs are the two that scikit-learn ships (a palace in China, and a flower). Each split has its own region of
them, so that training and test pixels are disjoint. The camera moves straight on, by fractions of a pixel, and rotates
slightly: neighbouring frames sample the same details at other positions, which a video model can exploit.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import av
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from vcycle.data.embedded import being_made, check_clips
from vcycle.errors import DataError
from vcycle.utils.extras import require
from vcycle.utils.folders import make_folder

__all__ = ["MARKER", "PhotographSettings", "render_photographs"]

Floats = NDArray[np.float64]

MARKER = "photographs.json"
"""The file at the root of a set that holds its settings, and whether the set is finished."""

_FORMAT = 1
_SPLINE: Final = 3


class _Part(NamedTuple):
    """A rectangle of a photograph, in pixels."""

    photograph: str
    top: int
    bottom: int
    left: int
    right: int


_PARTS = {
    "train": (_Part("china.jpg", 0, 427, 210, 480), _Part("flower.jpg", 0, 427, 150, 480)),
    "val": (_Part("china.jpg", 130, 427, 480, 640),),
    "test": (_Part("china.jpg", 60, 427, 50, 210),),
}
"""The right half of the palace and the flower to train on, trees to validate, the palace's left half to test."""

_NARROWEST = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotographSettings:
    """Everything that decides the content of a set; two sets with equal settings are equal.

    Raises:
        DataError: A value is out of its range.
    """

    clips: Mapping[str, int] = field(default_factory=lambda: {"train": 30, "val": 2, "test": 4})
    """Clips of each split."""
    frames: int = 12
    """Frames of a clip."""
    size: int = 144
    """Side of the square frame in pixels."""
    speed: tuple[float, float] = (0.5, 2.5)
    """Pixels that the camera moves in one frame, at least and at most."""
    zoom: float = 2.0
    """Pixels to a pixel of the photograph, along a side. At 1 the details are so fine that nothing brings them back."""
    turn: float = 0.3
    """Degrees that it turns in one frame, at most."""
    seed: int = 0
    """Keys every draw."""

    def __post_init__(self) -> None:
        check_clips(self.clips)
        if self.frames < 1:
            raise DataError(f"frames is {self.frames}: give 1 or more")
        if not 1 <= self.zoom <= 8:
            raise DataError(f"zoom is {self.zoom}: give 1 to 8")
        if not 16 <= self.size <= _NARROWEST * self.zoom:
            most = f"{_NARROWEST * self.zoom:g}, which the photographs have room for"
            raise DataError(f"size is {self.size}: give 16 to {most}")
        if not 0 <= self.speed[0] <= self.speed[1]:
            raise DataError(f"speed is {self.speed}: give (low, high) with 0 <= low <= high")
        if self.turn < 0 or self.seed < 0:
            raise DataError(f"turn is {self.turn} and seed {self.seed}: give 0 or more")


def render_photographs(
    root: Path, settings: PhotographSettings | None = None, *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write the set as ``root/SPLIT/NN/NNNN.png``, unless it is there already with the same settings.

    A clip depends on its own split and number, and on the settings of its look. A set that was cut off, or that has
    other settings, is made anew.

    Args:
        root: Folder of the set: new, empty, or holding an earlier set of this kind.
        settings: What to make; the defaults if left out.
        progress: Called with (clips done, clips in all) after each clip.

    Returns:
        ``root``.

    Raises:
        DataError: ``root`` holds something else.
        VcycleError: It cannot be made.
    """
    settings = settings or PhotographSettings()
    with being_made(root, MARKER, asdict(settings), _FORMAT) as missing:
        if not missing:
            return root
        jobs = [(split, number) for split, count in settings.clips.items() for number in range(count)]
        photographs = _photographs()
        for done, (split, number) in enumerate(jobs, start=1):
            name, top, bottom, left, right = _PARTS[split][number % len(_PARTS[split])]
            rng = np.random.Generator(
                np.random.Philox(np.random.SeedSequence((settings.seed, *split.encode(), number)))
            )
            folder = root / split / f"{number:02d}"
            make_folder(folder)
            for frame, pixels in enumerate(_filmed(photographs[name][top:bottom, left:right], settings, rng)):
                (folder / f"{frame:04d}.png").write_bytes(_png(pixels))
            if progress is not None:
                progress(done, len(jobs))
    return root


@functools.cache
def _photographs() -> dict[str, NDArray[np.uint8]]:
    """The photographs by name, uint8 ``(H, W, 3)``."""
    found = require("sklearn.datasets").load_sample_images()
    return {Path(name).name: np.asarray(image) for name, image in zip(found.filenames, found.images, strict=True)}


def _filmed(part: NDArray[np.uint8], settings: PhotographSettings, rng: np.random.Generator) -> NDArray[np.uint8]:
    """What a camera sees that moves over a part of a photograph: uint8 ``(frames, size, size, 3)``."""
    speed, angle = rng.uniform(*settings.speed), rng.uniform(0, 2 * np.pi)
    tilt, turn = rng.uniform(-5, 5), rng.uniform(-settings.turn, settings.turn)
    room = np.array(part.shape[:2]) - settings.size / settings.zoom
    # No further than there is room for: the camera stays over its part.
    straight = speed / settings.zoom * (settings.frames - 1) * np.array((np.sin(angle), np.cos(angle)))
    way = np.clip(straight, -room, room)
    start = np.maximum(-way, 0) + rng.random(2) * (room - abs(way))
    coefficients = [ndimage.spline_filter(part[..., channel].astype(np.float64), _SPLINE) for channel in range(3)]
    seen = np.empty((settings.frames, settings.size, settings.size, 3), np.uint8)
    middle = np.full(2, (settings.size - 1) / 2)
    for number, into in enumerate(seen):
        radians = np.deg2rad(tilt + turn * number)
        turned = np.array(((np.cos(radians), -np.sin(radians)), (np.sin(radians), np.cos(radians)))) / settings.zoom
        corner = start + way * number / max(settings.frames - 1, 1)
        offset = corner + middle / settings.zoom - turned @ middle
        for channel, plane in enumerate(coefficients):
            light: Floats = ndimage.affine_transform(
                plane, turned, offset, (settings.size, settings.size), order=_SPLINE, mode="mirror", prefilter=False
            )
            into[..., channel] = np.rint(np.clip(light, 0, 255))
    return seen


def _png(pixels: NDArray[np.uint8]) -> bytes:
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = "rgb24", Fraction(1)
    encoder.thread_count = 1
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
    return b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))
