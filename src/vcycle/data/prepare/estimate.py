"""Estimates the disk space and time of a preparation from a few files."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcycle.data.engines.jobs import Job
from vcycle.data.engines.local import ProcessPool
from vcycle.data.locations import Location, Url
from vcycle.data.prepare.arrays import CopyTask, MeasureTask, Place, copy_file, measure_file
from vcycle.data.prepare.encode import EncodeTask, encode_file
from vcycle.data.prepare.folder import TRIED
from vcycle.data.prepare.records import Record
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.prepare.sources import Source
from vcycle.errors import DataError
from vcycle.utils.cores import cores
from vcycle.utils.folders import free_bytes, nearest_folder

__all__ = ["Estimate", "check_space", "estimate_of"]

_FILES = 8
_SHARE = 4  # of few files, so that the estimate does not take as long as the run
_FRAMES = 300  # of a longer video, only the beginning
_LEAST_SPREAD = 0.1
_MOST_SPREAD = 1.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The remaining work."""

    files: int
    sampled: int
    """Number of files the estimate is based on."""

    bytes: tuple[float, float]
    """Disk space, lower and upper bound."""

    seconds: tuple[float, float]
    """Time, lower and upper bound."""


def estimate_of(
    files: Sequence[Source], settings: PrepareSettings, workers: int, patience: float, *, near: Location
) -> Estimate | None:
    """Try a few files, spread over all, in a temporary folder on the output disk; None if none can be read.

    Time and space are proportional to the source bytes. The range is two standard errors of that ratio each way, as a
    factor.
    """
    present = [file for file in files if file.size]
    count = min(_FILES, -(-len(present) // _SHARE))
    chosen = [present[int((n + 0.5) * len(present) / count)] for n in range(count)]
    with (
        _folder_near(near) as folder,
        ProcessPool(min(workers, cores(), max(1, count)), patience=patience) as engine,
    ):
        jobs = [
            Job(payload=(file, settings, f"{folder}/{number}", _FRAMES), size=file.size)
            for number, file in enumerate(chosen)
        ]
        done = engine.run(try_file, jobs)
        tried = [(outcome.job.size, *outcome.result) for outcome in done if not outcome.cause]
    if not tried:
        return None
    sizes, made, seconds = np.array(tried).T
    total = sum(file.size for file in files)
    return Estimate(
        files=len(files),
        sampled=len(tried),
        bytes=_range(sizes, made, total),
        seconds=_range(sizes, seconds, total / min(workers, max(1, len(files)))),
    )


def _folder_near(near: Location) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder on the output disk: the default location may be smaller, or in memory."""
    if isinstance(near, Url):
        return tempfile.TemporaryDirectory(prefix=TRIED)
    try:
        return tempfile.TemporaryDirectory(prefix=TRIED, dir=nearest_folder(near))
    except OSError:  # not writable, which is reported later
        return tempfile.TemporaryDirectory(prefix=TRIED)


def try_file(payload: tuple[Source, PrepareSettings, str, int], tell: Callable[[float], None]) -> tuple[float, float]:
    """Prepare the beginning of a file; return the bytes and seconds that the whole would take."""
    source, settings, folder, limit = payload
    targets = tuple(f"{folder}-{side}{settings.suffix}" for side in settings.levels)
    start = time.monotonic()
    record: Record
    if settings.to == "video":
        task = EncodeTask(
            source=source.path, frame_rate=source.frame_rate, targets=targets, settings=settings, limit=limit
        )
        record = encode_file(task, tell)
    else:
        frames, height, width = measure_file(MeasureTask(source=source.path, frame_rate=source.frame_rate), tell)
        for target in targets:
            Path(target).touch()
        places = tuple(
            Place(file=target, offset=0, size=size) if size else None
            for target, size in zip(targets, settings.stored(height, width), strict=True)
        )
        record = copy_file(
            CopyTask(source=source.path, frame_rate=source.frame_rate, frames=frames, places=places, limit=limit), tell
        )
    scale = record.whole / record.frames
    taken = time.monotonic() - start
    for target in targets:
        Path(target).unlink(missing_ok=True)
    return scale * sum(level.bytes for level in record.levels if level), scale * taken


def _range(sizes: Any, values: Any, total: float) -> tuple[float, float]:
    """Return the range of a total that is proportional to the sizes."""
    ratio = values.sum() / sizes.sum()
    spread = _MOST_SPREAD
    if len(sizes) > 1:
        error = np.sqrt(((values - ratio * sizes) ** 2).sum() / (len(sizes) - 1) / len(sizes)) / sizes.mean()
        spread = min(max(_LEAST_SPREAD, float(2 * error / ratio)), _MOST_SPREAD)
    return float(ratio * total / (1 + spread)), float(ratio * total * (1 + spread))


def check_space(out: Path, estimate: Estimate) -> None:
    """Refuse to start without enough space.

    Raises:
        DataError: If the disk has less space than the middle of the range.
    """
    free, middle = free_bytes(out), sum(estimate.bytes) / 2
    if middle > free:
        raise DataError(f"{out}: {middle / 1e9:.3g} GB are needed and {free / 1e9:.3g} GB are free")
