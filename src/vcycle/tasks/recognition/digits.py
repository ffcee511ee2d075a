"""Generates a small demo dataset of real video files: handwritten digits that move over a textured background.

A class is a pair (digit, motion), so that both must be seen: the shape of the digit, which coarse pixels
blur, and the order of the frames, which a single frame does not show. The digits are scikit-learn's 1,797
scans of 8x8 cells (``load_digits``), enlarged by cubic convolution and placed at sub-pixel positions; a scan
belongs to one split alone. The frame is a torus: a digit that leaves at one side comes back at the other,
from a random start, so that neither its place nor any single frame says anything about the motion.

Arrays are planes of light in video levels: luma ``(frames, height, width)`` in 16..235, chroma
``(height / 2, width / 2)`` in 16..240. The files are H.264 in MP4 (a key frame each 12 frames, no B-frames).
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from vcycle.data.embedded import being_made, check_clips
from vcycle.data.layouts.splits import SPLITS
from vcycle.errors import DataError
from vcycle.tasks.digit_scans import (
    CELLS,
    Floats,
    background,
    generator,
    load_scans,
    placement,
    scans_of_split,
)
from vcycle.tasks.recognition.recipe import DigitsSection
from vcycle.utils.atomic import atomic_path
from vcycle.utils.cores import cores
from vcycle.utils.folders import make_folder

__all__ = ["MARKER", "MOTIONS", "render_digits", "render_luma"]

MOTIONS = (
    "left",
    "right",
    "up",
    "down",
    "clockwise",
    "counterclockwise",
    "up-left",
    "up-right",
    "down-left",
    "down-right",
)
"""Every motion, as seen on the screen. The turning ones go round a circle; the digit itself stays upright."""

MARKER = "digits.json"
"""The file at the root of a dataset with its settings, and whether it is complete."""

_RATE = 24
_ENCODER = {"preset": "superfast", "tune": "fastdecode", "crf": "23"}
_FORMAT = 1
_LUMA = (16.0, 235.0)
_CHROMA_SWING = 112.0
_DIRECTIONS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}


def render_digits(
    root: Path,
    settings: DigitsSection | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the set as ``root/SPLIT/CLASS/NNNN.mp4``, unless it is there already with the same settings.

    Each clip depends only on its own name and on the settings of its look, not on the other clips. Files are written
    atomically, and ``MARKER`` marks a complete set; one that is incomplete, or has other settings, is made anew.

    Args:
        root: Folder of the set: new, empty, or holding an earlier set of this kind.
        settings: What to render; the defaults if left out.
        progress: Called with (clips done, clips in all) after each clip.

    Returns:
        ``root``.

    Raises:
        DataError: ``root`` holds something else, or a setting is out of its range.
        VcycleError: It cannot be made.
    """
    settings = settings or DigitsSection()
    _check(settings)
    with being_made(root, MARKER, settings.model_dump(), _FORMAT) as missing:
        if not missing:
            return root
        jobs = list(_jobs(settings, load_scans()))
        for split in settings.clips:
            for name, _, _ in settings.classes:
                make_folder(root / split / name)
        # Half of the time is the encoder's, which runs without the interpreter's lock.
        with ThreadPoolExecutor(cores()) as pool:
            try:
                for done, _ in enumerate(pool.map(partial(_write_clip, root, settings), jobs), start=1):
                    if progress is not None:
                        progress(done, len(jobs))
            finally:
                pool.shutdown(cancel_futures=True)
    return root


def render_luma(scan: Floats, motion: str, settings: DigitsSection, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one clip's luma.

    Args:
        scan: The digit, ``(8, 8)``, 0 for paper and 1 for ink.
        motion: One of ``MOTIONS``.
        settings: Sizes, ranges and strengths.
        rng: Source of every random choice.

    Returns:
        Luma in video levels, ``(frames, size, size)``.
    """
    light = rng.uniform(0.35, 0.65) + background(settings.size, settings.texture, rng)
    contrast = rng.uniform(*settings.contrast) * rng.choice((-1.0, 1.0))
    rows, columns = placement(_path(motion, settings, rng), settings.size, settings.digit_size)
    ink = np.clip(rows @ scan @ columns.swapaxes(1, 2), 0.0, 1.0)
    frames = light + np.float32(contrast) * ink
    if settings.noise:
        frames += np.float32(settings.noise) * rng.standard_normal(frames.shape, dtype=np.float32)
    black, white = _LUMA
    return np.rint(black + (white - black) * np.clip(frames, 0.0, 1.0)).astype(np.uint8)


class _Job(NamedTuple):
    """One clip to write, with its scan: a worker need not load them."""

    split: str
    name: str
    digit: int
    motion: str
    number: int
    scan: Floats


def _jobs(settings: DigitsSection, scans: Mapping[int, Floats]) -> Iterator[_Job]:
    for split, count in settings.clips.items():
        for name, digit, motion in settings.classes:
            mine = scans_of_split(scans[digit], split, digit, settings.seed)
            for number in range(count):
                # The scan follows from the number, so that every motion shows every scan equally often.
                yield _Job(split, name, digit, motion, number, mine[number % len(mine)])


def _write_clip(root: Path, settings: DigitsSection, job: _Job) -> None:
    split, motion = SPLITS.index(job.split), MOTIONS.index(job.motion)
    rng = generator(settings.seed, 1 + split, job.digit, motion, job.number)
    luma = render_luma(job.scan, job.motion, settings, rng)
    blue, red = (_to_chroma(background(settings.size // 2, settings.texture, rng)) for _ in range(2))
    _encode(root / job.split / job.name / f"{job.number:04d}.mp4", luma, blue, red)


def _check(settings: DigitsSection) -> None:
    _check_choices("digits", settings.digits, tuple(range(10)))
    _check_choices("motions", settings.motions, MOTIONS)
    check_clips(settings.clips)
    if settings.frames < 2:
        raise DataError(f"frames is {settings.frames}: a motion takes at least 2")
    if settings.size < 16 or settings.size % 2:
        raise DataError(f"size is {settings.size}: H.264 at 4:2:0 takes an even size, here 16 or more")
    widest = settings.size * CELLS / (CELLS + 3)
    if not CELLS <= settings.digit_size <= widest:
        accepted = f"{CELLS} to {widest:.4g} pixels in a frame of {settings.size}"
        raise DataError(f"digit_size is {settings.digit_size:g}: give {accepted}")
    for name in ("speed", "radius", "contrast"):
        low, high = getattr(settings, name)
        if not low <= high <= 1:
            raise DataError(f"{name} is ({low}, {high}): give (low, high) with 0 < low <= high <= 1")
    for name in ("jitter", "texture", "noise"):
        if (value := getattr(settings, name)) > 1:
            raise DataError(f"{name} is {value}: give a value from 0 to 1")


def _check_choices(name: str, values: tuple[object, ...], accepted: tuple[object, ...]) -> None:
    unknown = [value for value in values if value not in accepted]
    if unknown or not values or len(set(values)) < len(values):
        fault = f"has {unknown[0]!r}" if unknown else f"is {values}"
        raise DataError(f"{name} {fault}: give one or more, each once, of {', '.join(map(str, accepted))}")


def _path(motion: str, settings: DigitsSection, rng: np.random.Generator) -> Floats:
    """Draw the digit's center in each frame, ``(frames, 2)`` as (y, x) in sides, not yet wrapped."""
    frames = np.arange(settings.frames)[:, None]
    start, speed, phase = rng.random(2), rng.uniform(*settings.speed), rng.uniform(0.0, 2 * np.pi)
    radius = rng.uniform(*settings.radius)
    if motion in ("clockwise", "counterclockwise"):
        # Rows grow downwards, so that a growing angle turns clockwise on the screen.
        angle = phase + frames * (speed / radius) * (1 if motion == "clockwise" else -1)
        path = start + radius * np.concatenate((np.sin(angle), np.cos(angle)), axis=1)
    else:
        direction = np.sum([_DIRECTIONS[part] for part in motion.split("-")], axis=0)
        path = start + frames * speed * direction / np.linalg.norm(direction)
    path = path + settings.jitter * rng.standard_normal(path.shape)
    return path.astype(np.float32)


def _to_chroma(plane: Floats) -> NDArray[np.uint8]:
    levels: Floats = 128.0 + _CHROMA_SWING * np.clip(plane, -1.0, 1.0)
    return np.rint(levels).astype(np.uint8)


def _encode(path: Path, luma: NDArray[np.uint8], blue: NDArray[np.uint8], red: NDArray[np.uint8]) -> None:
    """Write one H.264 file."""
    frames, height, width = luma.shape
    chroma = np.concatenate((blue.reshape(-1, width), red.reshape(-1, width)))
    with atomic_path(path, durable=False) as partial, av.open(str(partial), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=_RATE, options=_ENCODER)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size = 12
        stream.codec_context.max_b_frames = 0
        stream.codec_context.thread_count = 1  # the same bytes on every machine, and no threads to start
        for number in range(frames):
            planes = np.concatenate((luma[number], chroma))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        container.mux(stream.encode(None))
