"""Prepares a dataset file by file, in parallel; an interrupted run resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcycle.data.engines.jobs import PATIENCE, Engine, Function, Job, Outcome, OutputError, Progress, each
from vcycle.data.engines.local import ProcessPool
from vcycle.data.layouts import VideoList
from vcycle.data.locations import Location, Url, location, request_each
from vcycle.data.prepare.arrays import CopyTask, MeasureTask, Place, copy_file, measure_file, reserve, wipe
from vcycle.data.prepare.encode import EncodeTask, encode_file
from vcycle.data.prepare.estimate import Estimate, check_space, estimate_of
from vcycle.data.prepare.extents import Extent, compare_extents
from vcycle.data.prepare.folder import check_folder, content_of, flush_folders, locked_folder, write_json
from vcycle.data.prepare.index import write_index
from vcycle.data.prepare.journal import Journal
from vcycle.data.prepare.names import INDEX, REPORT, journal_of
from vcycle.data.prepare.parts import Part, PartResult, finished_parts, refuse_mixed
from vcycle.data.prepare.records import Record
from vcycle.data.prepare.report import PrepareReport
from vcycle.data.prepare.settings import PrepareSettings
from vcycle.data.prepare.sources import Source, Sources, find_sources, look_at
from vcycle.data.video import VideoError
from vcycle.errors import DataError
from vcycle.utils.atomic import partial_of
from vcycle.utils.cores import cores

__all__ = ["Preparation", "PrepareReport", "Progress", "prepare_videos"]


def prepare_videos(
    splits: Mapping[str, VideoList],
    out: Location,
    settings: PrepareSettings,
    *,
    workers: int | None = None,
    patience: float = PATIENCE,
    engine: Engine | None = None,
    part: Part | None = None,
    progress: Progress = lambda *_: None,
) -> PrepareReport:
    """Write a dataset in a form that trains fast, into a folder that ``vcycle train`` accepts.

    Each file is complete or absent. An interrupted run resumes when called again, and gives the same bytes as an
    uninterrupted one.

    Args:
        splits: Videos by split.
        out: The output folder; created if missing. At a URL, only for videos.
        settings: The settings of the preparation.
        workers: Number of files processed in parallel; one per core by default. Does not change the result.
        patience: Seconds without progress before a file is abandoned; longer for large files.
        engine: What processes the files, instead of ``workers`` processes of this machine. Does not change the result.
        part: The part of the files to write; see ``Preparation.merge``. By default all.
        progress: Progress callback.

    Raises:
        DataError: If the folder has other content or cannot be written, or no video can be read.
    """
    preparation = Preparation(splits, out, settings, workers=workers, patience=patience, engine=engine, part=part)
    return preparation.run(progress)


@dataclass(kw_only=True)
class _State:
    """What a run knows so far."""

    records: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    redone: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Work:
    """A run in progress."""

    engine: Engine
    journal: Journal
    state: _State
    progress: Progress

    def noted(self, kind: str, file: Source) -> Any:
        """What the journal has of a file as it is now; None if nothing."""
        return self.journal.get(kind, file.name, [file.stamp])

    def each(
        self, function: Function, files: Sequence[Source], payloads: Sequence[Any], what: str
    ) -> Iterator[tuple[Source, Outcome]]:
        """Run a function on files; yield each file as it ends, and its outcome."""
        jobs = [Job(payload=payload, size=file.size) for file, payload in zip(files, payloads, strict=True)]
        for number, outcome in each(self.engine, function, jobs, what, self.progress):
            yield files[number], outcome


class Preparation:
    """A preparation, planned but not run."""

    def __init__(
        self,
        splits: Mapping[str, VideoList],
        out: Location,
        settings: PrepareSettings,
        *,
        data: Location | None = None,
        workers: int | None = None,
        patience: float = PATIENCE,
        engine: Engine | None = None,
        part: Part | None = None,
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
            engine: See ``prepare_videos``.
            part: See ``prepare_videos``.

        Raises:
            DataError: If the folder has other content, or cannot hold what is asked.
        """
        self.out = out.absolute()  # engines may work in other folders
        self.settings = settings
        self.patience = patience
        self.data = data or next(iter(splits.values())).source
        self.engine = engine or ProcessPool(workers or cores(), patience=patience)
        self.part = part
        if settings.to == "array" and (part is not None or isinstance(out, Url)):
            where = f"part {part}" if part is not None else str(out)
            raise DataError(f"{where}: an array is one file on a disk that all workers share: prepare videos instead")
        self.content = content_of(settings, self.data)
        check_folder(self.out, self.content, data=self.data)
        self.sources: Sources = find_sources(splits)
        self.files = self.sources.files if part is None else part.select(self.sources.files)

    def estimate(self) -> Estimate | None:
        """Estimate the remaining work by trying a few files; None if nothing is left, or nothing can be read."""
        look_at(self.files)
        journal = self._journal()
        left = [file for file in self.files if journal.get("written", file.name, [file.stamp]) is None]
        return estimate_of(left, self.settings, self.engine.workers, self.patience, near=self.out)

    def _journal(self, part: Part | None = None) -> Journal:
        """Read the journal of earlier runs; files with damaged lines are redone."""
        part = part or self.part
        folder = self.out if part is None else part.folder(self.out)
        return Journal(journal_of(folder), {"measured": _measured, "written": Record.from_json}, lenient=True)

    def check_space(self, estimate: Estimate) -> None:
        """Refuse to start without enough disk space.

        Raises:
            DataError: If there is not enough.
        """
        if isinstance(self.out, Path):
            check_space(self.out, estimate)

    def run(self, progress: Progress = lambda *_: None) -> PrepareReport:
        """Run the preparation; see ``prepare_videos``.

        Raises:
            DataError: See ``prepare_videos``; and if the folder holds parts, which ``merge`` completes.
        """
        start = time.monotonic()
        state = _State()
        refuse_mixed(self.out, self.part)
        locked = () if self.part is None else [self.part.folder(self.out)]
        look_at(self.files)
        with locked_folder(self.out, self.content, data=self.data, parts=locked), self._faults_of_output(state):
            with self._journal() as journal, self.engine as engine:
                work = _Work(engine, journal, state, progress)
                places = self._places(work)
                kept = self._keep(work, places)
                self._write(work, places)
                left_over = len(journal.names("written") - {file.name for file in self.files})
            seconds = time.monotonic() - start
            report = self._report(state, kept, left_over, seconds)
            if self.part is None:
                self._finish(state, report)
            else:
                PartResult(
                    settings=self.content,
                    names=PartResult.digest(file.name for file in self.files),
                    failed=state.failures,
                    redone=state.redone,
                    seconds=seconds,
                ).write(self.part.folder(self.out))
        return report

    def merge(self) -> PrepareReport:
        """Complete a folder of which every part has been written; gives the bytes of one preparation.

        Returns:
            The report of all parts; its seconds are their sum.

        Raises:
            DataError: If a part or a file is missing, or is of other settings or videos.
        """
        state, seconds = _State(), 0.0
        look_at(self.files)
        results = finished_parts(self.out, self.content, [file.name for file in self.sources.files])
        locked = [part.folder(self.out) for part in results]
        lock = locked_folder(self.out, self.content, data=self.data, parts=locked, merge=True)
        with lock, self._faults_of_output(state):
            for part, result in results.items():
                journal = self._journal(part)
                state.failures |= result.failed
                state.redone |= result.redone
                seconds += result.seconds
                for file in part.select(self.sources.files):
                    record = journal.get("written", file.name, [file.stamp])
                    if record is not None:
                        state.records[file.name] = record
                        state.failures.pop(file.name, None)
                    elif file.name not in result.failed:
                        raise DataError(f"{file.path}: has changed since part {part} was written: run --part {part}")
            self._check_sizes(state.records)
            report = self._report(state, 0, 0, seconds)
            self._finish(state, report)
        return report

    @contextmanager
    def _faults_of_output(self, state: _State) -> Iterator[None]:
        """Say what to do if the output cannot be written."""
        try:
            yield
        except OSError as error:
            raise DataError(f"{self.out}: cannot be written: {error.strerror or error}") from error
        except OutputError as error:
            done = f"{len(state.records)} of {len(self.files)} videos are done and will be kept"
            raise DataError(f"{error}; {done}: free some disk space and run the same command again") from error

    def _check_sizes(self, records: Mapping[str, Record]) -> None:
        """Refuse a file that is missing or has another size than was written; ``vcycle check`` compares checksums."""

        def check(file: Source) -> None:
            compare_extents(self._extents(file, records[file.name]), contents=False)

        written = (file for file in self.sources.files if file.name in records)
        try:
            if isinstance(self.out, Url):
                request_each(check, written)
            else:
                for file in written:
                    check(file)
        except VideoError as error:
            raise DataError(f"{error}: run --part again for the parts, and merge then") from error

    def _finish(self, state: _State, report: PrepareReport) -> None:
        """Write the report and the index, which makes the folder ready."""
        if not state.records:
            name, cause = next(iter(state.failures.items()))
            raise DataError(f"{self.out}: none of {len(state.failures)} videos can be read, {name}: {cause}")
        if isinstance(self.out, Path):
            flush_folders(self.out)
        write_json(self.out / REPORT, report.to_json())
        write_index(self.out, self.settings, self.sources, state.records, state.failures)

    def _places(self, work: _Work) -> dict[str, tuple[Place | None, ...]]:
        """For arrays, assign a place to each video that can be measured. Empty for videos."""
        if self.settings.to != "array":
            return {}
        unknown = [file for file in self.files if work.noted("measured", file) is None]
        payloads = [MeasureTask(source=file.path, frame_rate=file.frame_rate) for file in unknown]
        for file, outcome in work.each(measure_file, unknown, payloads, "measuring, MB"):
            if outcome.cause:
                work.state.failures[file.name] = outcome.cause
            else:
                work.journal.note("measured", file.name, list(outcome.result), [file.stamp])
        places: dict[str, tuple[Place | None, ...]] = {}
        ends: dict[str, int] = {}
        for file in self.files:
            if (measured := work.noted("measured", file)) is None:
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

    def _keep(self, work: _Work, places: Mapping[str, tuple[Place | None, ...]]) -> int:
        """Keep the unchanged output of earlier runs; return the number of files kept."""
        found = [
            (file, record)
            for file in self.files
            if (record := work.noted("written", file)) is not None and self._in_place(record, places.get(file.name))
        ]
        files = [file for file, _ in found]
        payloads = [self._extents(file, record) for file, record in found]
        record_of = {file.name: record for file, record in found}
        for file, outcome in work.each(compare_extents, files, payloads, "checking existing files, MB"):
            if not outcome.cause:
                work.state.records[file.name] = record_of[file.name]
        return len(work.state.records)

    def _in_place(self, record: Record, places: tuple[Place | None, ...] | None) -> bool:
        """For arrays, return whether a video is already in its assigned place."""
        if self.settings.to == "video":
            return True
        levels = [level and (level.offset, level.size) for level in record.levels]
        return places is not None and levels == [place and (place.offset, place.size) for place in places]

    def _extents(self, file: Source, record: Record) -> list[Extent]:
        """Return what was written of a file, by level."""
        return [
            Extent(target, level.offset, level.bytes, level.checksum, self.settings.to == "video")
            for target, level in zip(self._targets(file), record.levels, strict=True)
            if level is not None
        ]

    def _targets(self, file: Source) -> tuple[str, ...]:
        return tuple(str(self.out / self.settings.file(side, file.name)) for side in self.settings.levels)

    def _write(self, work: _Work, places: Mapping[str, tuple[Place | None, ...]]) -> None:
        """Write the remaining files."""
        state, journal = work.state, work.journal
        done = state.records.keys() | state.failures.keys()
        left = [file for file in self.files if file.name not in done]
        before = journal.names("written")
        if left and (self.part is not None or any(file.name in places or file.name in before for file in left)):
            # The index of an earlier run would be wrong once a file is replaced. So would a part's.
            (self.out / INDEX).unlink(missing_ok=True)
        if self.settings.to == "array":
            function: Function = copy_file
            payloads: list[Any] = [
                CopyTask(
                    source=file.path,
                    frame_rate=file.frame_rate,
                    frames=(work.noted("measured", file) or (0, 0, 0))[0],
                    places=places[file.name],
                )
                for file in left
            ]
        else:
            function = encode_file
            payloads = [
                EncodeTask(
                    source=file.path, frame_rate=file.frame_rate, targets=self._targets(file), settings=self.settings
                )
                for file in left
            ]
        for file, outcome in work.each(function, left, payloads, "preparing, MB"):
            if outcome.redone:
                state.redone[file.name] = outcome.redone
            if not outcome.cause:
                journal.note("written", file.name, outcome.result.to_json(), [file.stamp])
                state.records[file.name] = outcome.result
                continue
            state.failures[file.name] = outcome.cause
            for target in self._targets(file):  # a killed worker could not clean up
                if isinstance(written := location(target), Path):
                    partial_of(written).unlink(missing_ok=True)
            for place in places.get(file.name, ()):
                if place is not None:
                    wipe(place, (work.noted("measured", file) or (0, 0, 0))[0])

    def _report(self, state: _State, kept: int, left_over: int, seconds: float) -> PrepareReport:
        path_of = {file.name: file.path for file in self.sources.files}
        levels = [level for record in state.records.values() for level in record.levels if level is not None]
        return PrepareReport(
            videos=len(self.files),
            kept=kept,
            failed={path_of[name]: cause for name, cause in sorted(state.failures.items())},
            damaged={
                path_of[name]: len(record.filled) for name, record in sorted(state.records.items()) if record.filled
            },
            incomplete={path_of[name]: r.incomplete for name, r in sorted(state.records.items()) if r.incomplete},
            redone={path_of[name]: cause for name, cause in sorted(state.redone.items())},
            left_over=left_over,
            source_bytes=sum(file.size for file in self.files),
            bytes=sum(level.bytes for level in levels),
            seconds=seconds,
        )


def _measured(data: Sequence[int]) -> tuple[int, int, int]:
    frames, height, width = map(int, data)
    return frames, height, width
