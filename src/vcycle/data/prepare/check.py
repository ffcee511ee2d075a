"""Verification: opens and decodes every file of a dataset in full, without writing anything."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vcycle.data.engines.jobs import PATIENCE, Job, Progress, each
from vcycle.data.engines.local import ProcessPool
from vcycle.data.layouts import VideoList
from vcycle.data.prepare.decoding import open_whole
from vcycle.data.prepare.extents import Extent, compare_extents
from vcycle.data.prepare.index import PreparedIndex
from vcycle.data.prepare.sources import find_sources, look_at
from vcycle.utils.cores import cores

__all__ = ["CheckReport", "check_prepared", "check_videos"]


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Result of a check."""

    videos: int
    bad: Mapping[str, str]
    """Unusable files: the cause by path."""

    damaged: Mapping[str, str]
    """Files with missing or undecodable frames: their number by path."""

    seconds: float


def check_videos(
    splits: Mapping[str, VideoList],
    *,
    quick: bool = False,
    workers: int | None = None,
    patience: float = PATIENCE,
    progress: Progress = lambda *_: None,
) -> CheckReport:
    """Open and decode every file of a dataset.

    Args:
        splits: Videos by split.
        quick: Whether to only read the files' packets and decode one frame of each.
        workers: Number of files decoded in parallel; one per core by default.
        patience: Seconds without progress before a file is abandoned; longer for large files.
        progress: Called with the current activity, the MB done and the total MB.
    """
    files = list({file.path: file for file in find_sources(splits).files}.values())
    start = time.monotonic()
    look_at(files)
    jobs = [Job(payload=(file.path, file.frame_rate, quick), size=file.size) for file in files]
    bad: dict[str, str] = {}
    damaged: dict[str, str] = {}
    paths = [file.path for file in files]
    with ProcessPool(min(workers or cores(), max(1, len(jobs))), patience=patience) as engine:
        for number, outcome in each(engine, check_file, jobs, "checking, MB", progress):
            if outcome.cause:
                bad[paths[number]] = outcome.cause
            elif outcome.result:
                damaged[paths[number]] = outcome.result
    return _report(len(jobs), bad, damaged, start)


def check_prepared(
    index: PreparedIndex, *, workers: int | None = None, progress: Progress = lambda *_: None
) -> CheckReport:
    """Compare a prepared folder byte by byte with what was written."""
    start = time.monotonic()
    levels = range(len(index.settings.levels))
    parts = [[_part(index, row, level) for level in levels if index.has(row, level)] for row in range(len(index))]
    jobs = [Job(payload=some, size=sum(part.bytes for part in some)) for some in parts]
    bad: dict[str, str] = {}
    with ProcessPool(min(workers or cores(), max(1, len(jobs)))) as engine:
        for number, outcome in each(engine, compare_extents, jobs, "checking, MB", progress):
            if outcome.cause:
                bad[str(index.folder / index.name(number))] = outcome.cause
    damaged = {
        str(index.folder / name): f"{frames} frames could not be decoded when it was prepared"
        for name, frames in index.damaged().items()
    }
    return _report(len(jobs), bad, damaged, start)


def check_file(payload: tuple[str, float | None, bool], tell: Callable[[float], None]) -> str:
    """Return what is damaged in a video, in words; empty if nothing is.

    Raises:
        VideoError: If the video cannot be read.
    """
    path, frame_rate, quick = payload
    whole = open_whole(path, frame_rate, tell)
    damaged = 0
    if not quick:
        for number, (frame, missing) in enumerate(whole.frames, 1):
            damaged += missing or frame.is_corrupt
            tell(number / whole.info.frames)
    frames = f"{damaged} of {whole.info.frames} frames cannot be decoded" if damaged else ""
    return "; ".join(part for part in (whole.info.incomplete, frames) if part)


def _part(index: PreparedIndex, row: int, level: int) -> Extent:
    columns = index.columns
    return Extent(
        path=str(index.file(row, level)),
        offset=int(columns["offset"][row, level]),
        bytes=int(columns["bytes"][row, level]),
        checksum=bytes(columns["checksum"][row, level]).hex(),
        whole=index.settings.to == "video",
    )


def _report(videos: int, bad: Mapping[str, str], damaged: Mapping[str, str], start: float) -> CheckReport:
    return CheckReport(
        videos=videos,
        bad=dict(sorted(bad.items())),
        damaged=dict(sorted(damaged.items())),
        seconds=time.monotonic() - start,
    )
