"""Every file of a dataset opened and decoded whole, without writing anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vcycle.data.layouts import VideoList
from vcycle.data.prepare.crew import PATIENCE, Crew, Job
from vcycle.data.prepare.decoding import open_whole, whole_of
from vcycle.data.prepare.index import PreparedIndex
from vcycle.data.prepare.parts import Part, compare_parts
from vcycle.data.prepare.sources import find_sources
from vcycle.data.prepare.work import Progress, each
from vcycle.data.video import VideoError, VideoIndex, probe
from vcycle.data.video.container import opened
from vcycle.utils.cores import cores

__all__ = ["CheckReport", "check_prepared", "check_videos"]

# What a video may end too early where its header does not count frames: share of its duration, and seconds.
_EARLY = 0.05
_EARLY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What a check found."""

    videos: int
    bad: Mapping[str, str]
    """Files that cannot be used as they are, by path, and why."""

    damaged: Mapping[str, str]
    """Files of which some frames are missing or cannot be decoded, by path, and how many."""

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
        quick: Whether to read the files' packets alone, and decode one frame of each.
        workers: Files decoded at a time; one per core by default.
        patience: Seconds without progress after which a file is given up, more for a large one.
        progress: Told what is being done, how many MB of it are, and how many there are.
    """
    files = list({file.path: file for file in find_sources(splits).files}.values())
    jobs = [Job(payload=(file.path, file.frame_rate, quick), size=file.size) for file in files]
    start = time.monotonic()
    bad: dict[str, str] = {}
    damaged: dict[str, str] = {}
    paths = [file.path for file in files]
    with Crew(min(workers or cores(), max(1, len(jobs))), patience=patience) as crew:
        for number, result, cause in each(crew, check_file, jobs, "checking, MB", progress):
            if cause:
                bad[paths[number]] = cause
            elif result:
                damaged[paths[number]] = result
    return _report(len(jobs), bad, damaged, start)


def check_prepared(
    index: PreparedIndex, *, workers: int | None = None, progress: Progress = lambda *_: None
) -> CheckReport:
    """Compare what a prepared folder holds with what was written, byte by byte."""
    start = time.monotonic()
    levels = range(len(index.settings.levels))
    parts = [[_part(index, row, level) for level in levels if index.has(row, level)] for row in range(len(index))]
    jobs = [Job(payload=some, size=sum(part.bytes for part in some)) for some in parts]
    bad: dict[str, str] = {}
    with Crew(min(workers or cores(), max(1, len(jobs)))) as crew:
        for number, _, cause in each(crew, compare_parts, jobs, "checking, MB", progress):
            if cause:
                bad[str(index.folder / index.name(number))] = cause
    damaged = {
        str(index.folder / name): f"{frames} frames could not be decoded when it was prepared"
        for name, frames in index.damaged().items()
    }
    return _report(len(jobs), bad, damaged, start)


def check_file(payload: tuple[str, float | None, bool], tell: Callable[[float], None]) -> str:
    """What is damaged of a video, in words; nothing if it is whole.

    Raises:
        VideoError: If it cannot be read, or not all of it is there.
    """
    path, frame_rate, quick = payload
    if frame_rate is None:
        index = probe(path)
        early, whole = _missing_end(index), whole_of(index)
    else:
        early, whole = "", open_whole(path, frame_rate)
    damaged = 0
    if not quick:
        for number, (frame, missing) in enumerate(whole.frames, 1):
            damaged += missing or frame.is_corrupt
            tell(number / whole.info.frames)
    frames = f"{damaged} of {whole.info.frames} frames cannot be decoded" if damaged else ""
    return "; ".join(part for part in (early, frames) if part)


def _part(index: PreparedIndex, row: int, level: int) -> Part:
    columns = index.columns
    return Part(
        path=str(index.file(row, level)),
        offset=int(columns["offset"][row, level]),
        bytes=int(columns["bytes"][row, level]),
        checksum=bytes(columns["checksum"][row, level]).hex(),
        whole=index.settings.to == "video",
    )


def _missing_end(index: VideoIndex) -> str:
    """How much earlier a file ends than its header says, in words.

    Raises:
        VideoError: If the header counts frames, and more of them than there are.
    """
    there, seconds = len(index.keyframe), 0.0
    with opened(index.path) as (container, stream):
        if "mp4" in container.format.name:  # its header lists every frame
            if stream.frames > there:
                raise VideoError(index.path, f"cut short: {there} of {stream.frames} frames are there")
        elif stream.duration is not None and stream.time_base is not None:
            seconds = float(stream.duration * stream.time_base)
        elif container.duration is not None and len(container.streams) == 1:
            seconds = container.duration / 1e6
    if index.info.duration < seconds - max(_EARLY_SECONDS, _EARLY * seconds):
        return f"ends after {index.info.duration:.1f} of {seconds:.1f} s"
    return ""


def _report(videos: int, bad: Mapping[str, str], damaged: Mapping[str, str], start: float) -> CheckReport:
    return CheckReport(
        videos=videos,
        bad=dict(sorted(bad.items())),
        damaged=dict(sorted(damaged.items())),
        seconds=time.monotonic() - start,
    )
