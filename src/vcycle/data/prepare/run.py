"""Prepares a dataset file by file, in parallel; an interrupted run resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcycle.data.layouts import VideoList
from vcycle.data.locations import Location
from vcycle.data.prepare.arrays import CopyTask, MeasureTask, Place, copy_file, measure_file, reserve, wipe
from vcycle.data.prepare.encode import EncodeTask, encode_file
from vcycle.data.prepare.estimate import Estimate, check_space, estimate_of
from vcycle.data.prepare.folder import check_folder, flush_folders, locked_folder, write_json
from vcycle.data.prepare.index import write_index
from vcycle.data.prepare.journal import Journal
from vcycle.data.prepare.names import INDEX, JOURNAL, REPORT
from vcycle.data.prepare.parts import Part, compare_parts
from vcycle.data.prepare.process_pool import PATIENCE, Function, Job, OutputError, ProcessPool
from vcycle.data.prepare.records import Record
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.prepare.sources import Source, Sources, find_sources
from vcycle.data.prepare.work import Progress, each
from vcycle.errors import DataError
from vcycle.utils.atomic import partial_of
from vcycle.utils.cores import cores

__all__ = ["Preparation", "PrepareReport", "Progress", "prepare_videos"]


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """Result of a preparation; ``report.json`` in its folder has the same content."""

    videos: int
    """Number of requested files."""

    kept: int
    """Number of files written by an earlier run."""

    failed: Mapping[str, str]
    """Files that could not be prepared: the cause by path. The index omits them."""

    damaged: Mapping[str, int]
    """Files with undecodable frames: their number by path. Such a frame repeats the one before it."""

    incomplete: Mapping[str, str]
    """Files with missing frames, such as truncated ones: what is missing, by path. Their remaining frames are used."""

    left_over: int
    """Number of files in the folder that no longer belong to any of the videos."""

    source_bytes: int
    bytes: int
    """Size of the sources and of the output in bytes."""

    seconds: float


def prepare_videos(
    splits: Mapping[str, VideoList],
    out: Path,
    settings: PrepareSettings,
    *,
    workers: int | None = None,
    patience: float = PATIENCE,
    progress: Progress = lambda *_: None,
) -> PrepareReport:
    """Write a dataset in a form that trains fast, into a folder that ``vcycle train`` accepts.

    Each file is complete or absent. An interrupted run resumes when called again, and gives the same bytes as an
    uninterrupted one.

    Args:
        splits: Videos by split.
        out: The output folder; created if missing.
        settings: The settings of the preparation.
        workers: Number of files processed in parallel; one per core by default. Does not change the result.
        patience: Seconds without progress before a file is abandoned; longer for large files.
        progress: Progress callback.

    Raises:
        DataError: If the folder has other content or cannot be written, or no video can be read.
    """
    return Preparation(splits, out, settings, workers=workers, patience=patience).run(progress)


@dataclass(kw_only=True)
class _State:
    """What a run knows so far."""

    records: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Preparation:
    """A preparation, planned but not run."""

    def __init__(
        self,
        splits: Mapping[str, VideoList],
        out: Path,
        settings: PrepareSettings,
        *,
        data: Location | None = None,
        workers: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Find out what is left to do. Writes nothing; see ``prepare_videos``.

        Args:
            splits: Videos by split.
            out: The output folder.
            settings: The settings of the preparation.
            data: Identifies the source; a folder prepared from another source is refused. By default where the first
                split was read from.
            workers: Number of files processed in parallel.
            patience: See ``prepare_videos``.

        Raises:
            DataError: If the folder has other content.
        """
        self.out = Path(out)
        self.settings = settings
        self.workers = workers or cores()
        self.patience = patience
        self.data = data or next(iter(splits.values())).source
        check_folder(self.out, settings, self.data)
        self.sources: Sources = find_sources(splits)

    def estimate(self) -> Estimate | None:
        """Estimate the remaining work by trying a few files; None if nothing is left, or nothing can be read."""
        journal = self._journal()
        left = [file for file in self.sources.files if journal.get("written", file.name, [file.stamp]) is None]
        return estimate_of(left, self.settings, self.workers, self.patience, near=self.out)

    def _journal(self) -> Journal:
        """Read the journal of earlier runs; files with damaged lines are redone."""
        return Journal(self.out / JOURNAL, {"measured": _measured, "written": Record.from_json}, lenient=True)

    def check_space(self, estimate: Estimate) -> None:
        """Refuse to start without enough disk space.

        Raises:
            DataError: If there is not enough.
        """
        check_space(self.out, estimate)

    def run(self, progress: Progress = lambda *_: None) -> PrepareReport:
        """Run the preparation; see ``prepare_videos``."""
        start = time.monotonic()
        state = _State()
        with locked_folder(self.out, self.settings, self.data):
            try:
                with self._journal() as journal, ProcessPool(self.workers, patience=self.patience) as crew:
                    places = self._places(crew, journal, state, progress)
                    kept = self._keep(crew, journal, state, places, progress)
                    self._write(crew, journal, state, places, progress)
                    left_over = len(journal.names("written") - {file.name for file in self.sources.files})
                if not state.records:
                    name, cause = next(iter(state.failures.items()))
                    raise DataError(f"{self.out}: none of {len(state.failures)} videos can be read, {name}: {cause}")
                flush_folders(self.out)
                report = self._report(state, kept, left_over, time.monotonic() - start)
                write_json(self.out / REPORT, _as_json(report))
                write_index(self.out, self.settings, self.sources, state.records, state.failures)
            except OSError as error:
                raise DataError(f"{self.out}: cannot be written: {error.strerror or error}") from error
            except OutputError as error:
                done = f"{len(state.records)} of {len(self.sources.files)} videos are done and will be kept"
                raise DataError(f"{error}; {done}: free some disk space and run the same command again") from error
        return report

    def _places(
        self, crew: ProcessPool, journal: Journal, state: _State, progress: Progress
    ) -> dict[str, tuple[Place | None, ...]]:
        """For arrays, assign a place to each video that can be measured. Empty for videos."""
        if self.settings.to != "array":
            return {}
        unknown = [file for file in self.sources.files if journal.get("measured", file.name, [file.stamp]) is None]
        payloads = [MeasureTask(source=file.path, frame_rate=file.frame_rate) for file in unknown]
        done = self._each(crew, measure_file, unknown, payloads, "measuring, MB", progress)
        for file, result, cause in done:
            if cause:
                state.failures[file.name] = cause
            else:
                journal.note("measured", file.name, list(result), [file.stamp])
        places: dict[str, tuple[Place | None, ...]] = {}
        ends: dict[str, int] = {}
        for file in self.sources.files:
            if (measured := journal.get("measured", file.name, [file.stamp])) is None:
                continue
            frames, height, width = measured
            places[file.name] = tuple(
                size and self._place(file, side, size, frames, ends)
                for side, size in zip(self.settings.levels, self.settings.stored(height, width), strict=True)
            )
        for array, end in ends.items():
            os.makedirs(os.path.dirname(array), exist_ok=True)
            reserve(array, end)
        return places

    def _place(self, file: Source, side: int, size: tuple[int, int], frames: int, ends: dict[str, int]) -> Place:
        array = str(self.out / self.settings.file(side, file.name))
        offset = ends.get(array, 0)
        ends[array] = offset + frames * size[0] * size[1] * 3
        return Place(file=array, offset=offset, size=size)

    def _keep(
        self,
        crew: ProcessPool,
        journal: Journal,
        state: _State,
        places: Mapping[str, tuple[Place | None, ...]],
        progress: Progress,
    ) -> int:
        """Keep the unchanged output of earlier runs; return the number of files kept."""
        found = [
            (file, record)
            for file in self.sources.files
            if (record := journal.get("written", file.name, [file.stamp])) is not None
            and self._in_place(record, places.get(file.name))
        ]
        files = [file for file, _ in found]
        payloads = [self._written_parts(file, record) for file, record in found]
        record_of = {file.name: record for file, record in found}
        done = self._each(crew, compare_parts, files, payloads, "checking existing files, MB", progress)
        for file, same, cause in done:
            if same and not cause:
                state.records[file.name] = record_of[file.name]
        return len(state.records)

    def _in_place(self, record: Record, places: tuple[Place | None, ...] | None) -> bool:
        """For arrays, return whether a video is already in its assigned place."""
        if self.settings.to == "video":
            return True
        levels = [level and (level.offset, level.size) for level in record.levels]
        return places is not None and levels == [place and (place.offset, place.size) for place in places]

    def _written_parts(self, file: Source, record: Record) -> list[Part]:
        """Return what was written of a file, by level."""
        return [
            Part(target, level.offset, level.bytes, level.checksum, self.settings.to == "video")
            for target, level in zip(self._targets(file), record.levels, strict=True)
            if level is not None
        ]

    def _targets(self, file: Source) -> tuple[str, ...]:
        return tuple(str(self.out / self.settings.file(side, file.name)) for side in self.settings.levels)

    def _write(
        self,
        crew: ProcessPool,
        journal: Journal,
        state: _State,
        places: Mapping[str, tuple[Place | None, ...]],
        progress: Progress,
    ) -> None:
        """Write the remaining files."""
        done = state.records.keys() | state.failures.keys()
        left = [file for file in self.sources.files if file.name not in done]
        if any(file.name in places or file.name in journal.names("written") for file in left):
            # The index of an earlier run would be wrong once a file is replaced.
            (self.out / INDEX).unlink(missing_ok=True)
        if self.settings.to == "array":
            function: Function = copy_file
            payloads: list[Any] = [
                CopyTask(
                    source=file.path,
                    frame_rate=file.frame_rate,
                    frames=(journal.get("measured", file.name, [file.stamp]) or (0, 0, 0))[0],
                    places=places[file.name],
                )
                for file in left
            ]
        else:
            function = encode_file
            payloads = [
                EncodeTask(
                    source=file.path,
                    frame_rate=file.frame_rate,
                    targets=self._targets(file),
                    settings=self.settings,
                )
                for file in left
            ]
        for file, record, cause in self._each(crew, function, left, payloads, "preparing, MB", progress):
            if not cause:
                journal.note("written", file.name, record.to_json(), [file.stamp])
                state.records[file.name] = record
                continue
            state.failures[file.name] = cause
            for target in self._targets(file):  # a killed worker could not clean up
                partial_of(Path(target)).unlink(missing_ok=True)
            for place in places.get(file.name, ()):
                if place is not None:
                    wipe(place, (journal.get("measured", file.name, [file.stamp]) or (0, 0, 0))[0])

    def _each(
        self,
        crew: ProcessPool,
        function: Function,
        files: Sequence[Source],
        payloads: Sequence[Any],
        what: str,
        progress: Progress,
    ) -> Iterator[tuple[Source, Any, str]]:
        """Run a function on files; yield each file, its result, and why it failed."""
        jobs = [Job(payload=payload, size=file.size) for file, payload in zip(files, payloads, strict=True)]
        for number, result, cause in each(crew, function, jobs, what, progress):
            yield files[number], result, cause

    def _report(self, state: _State, kept: int, left_over: int, seconds: float) -> PrepareReport:
        path_of = {file.name: file.path for file in self.sources.files}
        levels = [level for record in state.records.values() for level in record.levels if level is not None]
        return PrepareReport(
            videos=len(self.sources.files),
            kept=kept,
            failed={path_of[name]: cause for name, cause in sorted(state.failures.items())},
            damaged={
                path_of[name]: len(record.filled) for name, record in sorted(state.records.items()) if record.filled
            },
            incomplete={path_of[name]: r.incomplete for name, r in sorted(state.records.items()) if r.incomplete},
            left_over=left_over,
            source_bytes=self.sources.bytes,
            bytes=sum(level.bytes for level in levels),
            seconds=seconds,
        )


def _as_json(report: PrepareReport) -> dict[str, Any]:
    data = {name: getattr(report, name) for name in PrepareReport.__dataclass_fields__}
    data["failed"] = [{"path": path, "cause": cause} for path, cause in report.failed.items()]
    data["incomplete"] = [{"path": path, "cause": cause} for path, cause in report.incomplete.items()]
    data["damaged"] = [{"path": path, "frames": frames} for path, frames in report.damaged.items()]
    return data


def _measured(data: Sequence[int]) -> tuple[int, int, int]:
    frames, height, width = map(int, data)
    return frames, height, width
