"""Scanned digits over textured backgrounds: what the embedded datasets of videos and of images draw.

The digits are scikit-learn's 1,797 scans of 8x8 cells (``load_digits``), enlarged by cubic convolution and placed at
sub-pixel positions on a torus; a scan belongs to one split alone.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from vcycle.data.layouts.splits import SPLITS
from vcycle.utils.extras import require

__all__ = ["CELLS", "Floats", "background", "generator", "load_scans", "placement", "scans_of_split"]

Floats = NDArray[np.float32]

CELLS = 8
"""Side of a scan."""
_SHARES = (0.6, 0.2, 0.2)


def generator(*key: int) -> np.random.Generator:
    """Return the generator of a key."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


@functools.cache
def load_scans() -> dict[int, Floats]:
    """Read the scans of each digit, ``(scans, 8, 8)``, 0 for paper and 1 for ink."""
    data = require("sklearn.datasets").load_digits()
    images = (data.images / 16.0).astype(np.float32)
    return {digit: images[data.target == digit] for digit in range(10)}


def scans_of_split(scans: Floats, split: str, digit: int, seed: int) -> Floats:
    """Pick the scans of a digit that belong to a split; the splits are disjoint and cover them all."""
    edges = np.rint(np.cumsum((0.0, *_SHARES)) * len(scans)).astype(int)
    order = generator(seed, 0, digit).permutation(len(scans))
    place = SPLITS.index(split)
    return scans[order[edges[place] : edges[place + 1]]]


def placement(path: Floats, size: int, digit_size: float) -> tuple[Floats, Floats]:
    """Weigh the scan's cells in each pixel: rows and columns, each ``(frames, size, 8)``.

    The enlarged digit of a frame is ``rows @ scan @ columns.T``: cubic convolution is separable.
    """
    pixels = (np.arange(size) + 0.5) / size
    away = pixels[None, :, None] - path[:, None, :]
    away -= np.rint(away)  # on the torus: the shorter way round
    cells = away * (size * CELLS / digit_size) + (CELLS - 1) / 2
    weights = _cubic((cells[..., None] - np.arange(CELLS)).astype(np.float32))
    return weights[:, :, 0], weights[:, :, 1]


def background(size: int, strength: float, rng: np.random.Generator) -> Floats:
    """Draw smooth noise ``(size, size)`` around 0 with the given standard deviation, in four octaves."""
    noise = np.zeros((size, size), np.float32)
    for octave, cells in enumerate((2, 4, 8, 16)):
        weights = _lattice(size, cells)
        values = rng.standard_normal((cells, cells), dtype=np.float32)
        noise += np.float32(0.6**octave) * (weights @ values @ weights.T)
    noise -= noise.mean()
    noise *= strength / max(float(noise.std()), 1e-6)
    return noise


def _cubic(distance: Floats) -> Floats:
    """Weigh a sample by its distance, as cubic convolution with a = -0.5 does (Keys 1981)."""
    x = np.minimum(np.abs(distance), np.float32(2.0))
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, far).astype(np.float32)


@functools.cache
def _lattice(size: int, cells: int) -> Floats:
    """Weigh the points of a periodic lattice in each pixel, ``(size, cells)``."""
    pixels = (np.arange(size) + 0.5) * (cells / size)
    turns = np.arange(-2, 3) * cells
    away = pixels[:, None, None] - np.arange(cells)[None, :, None] - turns
    weights: Floats = _cubic(away.astype(np.float32)).sum(axis=-1)
    return weights
