"""Generates the demo dataset: handwritten digits over textured backgrounds, as ``SPLIT/DIGIT/NNNN.png``."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcycle.data.embedded import being_made
from vcycle.data.layouts.splits import SPLITS
from vcycle.data.pictures import encode_png
from vcycle.tasks.digit_scans import Floats, background, generator, load_scans, placement, scans_of_split
from vcycle.tasks.images.recipe import DigitsSection
from vcycle.utils.folders import make_folder

__all__ = ["render_digits", "render_image"]

_MARKER = "digits.json"
_FORMAT = 1


def render_digits(root: Path, settings: DigitsSection, progress: Callable[[int, int], None]) -> Path:
    """Write the set, unless it is there already with the same settings.

    An image depends on its own name and the settings of its look alone. The splits share no scan.

    Args:
        root: Folder of the set: new, empty, or holding an earlier set of this kind.
        settings: What to render.
        progress: Called with the images done and their total.

    Raises:
        DataError: if ``root`` holds something else.
        VcycleError: if it cannot be written.
    """
    with being_made(root, _MARKER, settings.model_dump(), _FORMAT) as missing:
        if missing:
            scans, done, total = load_scans(), 0, 10 * sum(settings.images.values())
            for split, count in settings.images.items():
                for digit in range(10):
                    folder = root / split / str(digit)
                    make_folder(folder)
                    mine = scans_of_split(scans[digit], split, digit, settings.seed)
                    for number in range(count):
                        rng = generator(settings.seed, 1 + SPLITS.index(split), digit, number)
                        pixels = render_image(mine[number % len(mine)], settings, rng)
                        (folder / f"{number:04d}.png").write_bytes(encode_png(pixels))
                        done += 1
                        progress(done, total)
    return root


def render_image(scan: Floats, settings: DigitsSection, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one image.

    Args:
        scan: The digit, ``(8, 8)``, 0 for paper and 1 for ink.
        settings: Sizes, ranges and strengths.
        rng: Source of every random choice.

    Returns:
        RGB ``(size, size, 3)``.
    """
    size = settings.size
    digit = size * rng.uniform(*settings.digit_size)
    room = 1 - digit / size
    place = 0.5 + room * (rng.random((1, 2)) - 0.5)
    rows, columns = placement(place.astype(np.float32), size, digit)
    ink = np.clip(rows[0] @ scan @ columns[0].T, 0.0, 1.0)[..., None]
    texture = np.stack([background(size, settings.texture, rng) for _ in range(3)], axis=-1)
    contrast = rng.uniform(*settings.contrast) * rng.choice((-1.0, 1.0))
    light = rng.uniform(0.35, 0.65) + texture + contrast * ink
    light += settings.noise * rng.standard_normal(light.shape)
    pixels: NDArray[np.uint8] = np.rint(255 * np.clip(light, 0.0, 1.0)).astype(np.uint8)
    return pixels
