"""Verification: opens and decodes every file of a dataset in full, without writing anything."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcycle.data.engines.jobs import PATIENCE, Job, Progress, each
from vcycle.data.engines.local import ProcessPool
from vcycle.data.layouts import VideoList
from vcycle.data.layouts.files import PICTURES, suffix_of
from vcycle.data.locations import is_url
from vcycle.data.prepare.decoding import is_of_pictures, open_whole, whole_of
from vcycle.data.prepare.extents import Extent, compare_extents
from vcycle.data.prepare.index import PreparedIndex
from vcycle.data.prepare.sources import Source, find_sources, look_at
from vcycle.data.prepare.summary import Duplicates, FileFacts, Summary, Tally, content_hash, duplicates_among
from vcycle.data.video import probe
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

    summary: Summary
    """The dataset in numbers."""


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
    sources = find_sources(splits).files
    files, rows = _each_once(sources)
    start = time.monotonic()
    look_at(files)
    tally, contents = Tally.of(splits), array("q", bytes(8 * len(files)))
    jobs = [Job(payload=(file.path, file.frame_rate, quick), size=file.size) for file in files]
    tally.bytes = sum(job.size for job in jobs)
    bad: dict[str, str] = {}
    damaged: dict[str, str] = {}
    with ProcessPool(min(workers or cores(), max(1, len(jobs))), patience=patience) as engine:
        for number, outcome in each(engine, check_file, jobs, "checking, MB", progress):
            if outcome.cause:
                bad[files[number].path] = outcome.cause
                continue
            facts: FileFacts = outcome.result
            tally.add(facts)
            contents[number] = facts.content
            if facts.fault:
                damaged[files[number].path] = facts.fault
    return _report(len(jobs), bad, damaged, start, tally.summary(_duplicates(sources, rows, list(splits), contents)))


def _each_once(sources: Sequence[Source]) -> tuple[list[Source], array[int]]:
    """Return the sources without those of a path that came before, and for each of all its place among them."""
    files, rows, numbers = list[Source](), array("q"), dict[str, int]()
    for source in sources:
        number = numbers.setdefault(source.path, len(files))
        if number == len(files):
            files.append(source)
        rows.append(number)
    return files, rows


def _duplicates(
    sources: Sequence[Source], rows: array[int], splits: Sequence[str], contents: array[int]
) -> list[Duplicates]:
    """Find files with the same content, in one split or two.

    Args:
        sources: The files of every split.
        rows: The number of each one's path.
        splits: The splits.
        contents: The content's hash by number.
    """
    names = (source.name.partition("/")[0] for source in sources)
    numbers = np.fromiter((splits.index(name) for name in names), dtype=np.int8, count=len(sources))
    hashes = np.asarray(contents, dtype=np.int64)[np.asarray(rows, dtype=np.int64)]
    return duplicates_among(hashes, splits, numbers, lambda row: sources[row].path)


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
    return _report(len(jobs), bad, damaged, start, _summary_of(index))


def _summary_of(index: PreparedIndex) -> Summary:
    """Count what an index records."""
    tally = Tally.of({split: index.videos(split) for split in index.splits if (index.rows(split) >= 0).any()})
    columns, settings = index.columns, index.settings
    tally.bytes = int(columns["bytes"].sum())
    for frames, (height, width), seconds in zip(
        columns["frames"].tolist(), columns["displayed"].tolist(), columns["duration"].tolist(), strict=True
    ):
        tally.add(
            FileFacts(
                frames=frames,
                seconds=seconds if frames > 1 else 0.0,
                height=height,
                width=width,
                codec="h264" if settings.to == "video" else "array",
                keyframe_seconds=seconds / frames * min(settings.group, frames) if settings.to == "video" else 0.0,
            )
        )
    return tally.summary()


def check_file(payload: tuple[str, float | None, bool], tell: Callable[[float], None]) -> FileFacts:
    """Decode a video; return what it is, and what is damaged in it.

    Raises:
        VideoError: If the video cannot be read.
    """
    path, frame_rate, quick = payload
    if is_of_pictures(path, frame_rate):
        whole, codec, between = open_whole(path, frame_rate), _suffix(path), 0.0
    else:
        index = probe(path, on_packet=lambda: tell(0.0))
        whole, codec, between = whole_of(index), index.codec, index.keyframe_seconds
    damaged, info = 0, whole.info
    if not quick:
        for number, (frame, missing) in enumerate(whole.frames, 1):
            damaged += missing or frame.is_corrupt
            tell(number / info.frames)
    told = f"{damaged} of {info.frames} frames cannot be decoded" if damaged else ""
    return FileFacts(
        frames=info.frames,
        seconds=info.duration if info.frames > 1 else 0.0,
        height=info.height,
        width=info.width,
        codec=codec,
        keyframe_seconds=between,
        content=0 if is_url(path) else content_hash(path),
        fault="; ".join(part for part in (info.incomplete, told) if part),
    )


def _suffix(path: str) -> str:
    """Return the suffix of a picture, or of a picture in a folder, as ``jpg``."""
    names = sorted(os.listdir(path)) if os.path.isdir(path) else [path]
    return next((suffix_of(name)[1:] for name in names if PICTURES.holds(name)), "")


def _part(index: PreparedIndex, row: int, level: int) -> Extent:
    columns = index.columns
    return Extent(
        path=str(index.file(row, level)),
        offset=int(columns["offset"][row, level]),
        bytes=int(columns["bytes"][row, level]),
        checksum=bytes(columns["checksum"][row, level]).hex(),
        whole=index.settings.to == "video",
    )


def _report(
    videos: int, bad: Mapping[str, str], damaged: Mapping[str, str], start: float, summary: Summary
) -> CheckReport:
    return CheckReport(
        videos=videos,
        bad=dict(sorted(bad.items())),
        damaged=dict(sorted(damaged.items())),
        seconds=time.monotonic() - start,
        summary=summary,
    )
