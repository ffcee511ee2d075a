"""A dataset prepared: file by file, in parallel, and gone on with wherever it was cut short."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcycle.data.layouts import VideoList
from vcycle.data.prepare.arrays import CopyTask, MeasureTask, Place, copy_file, measure_file, reserve, wipe
from vcycle.data.prepare.crew import PATIENCE, Crew, Function, Job, OutputError
from vcycle.data.prepare.encode import EncodeTask, encode_file
from vcycle.data.prepare.estimate import Estimate, check_space, estimate_of
from vcycle.data.prepare.folder import check_folder, flush_folders, locked_folder, write_json
from vcycle.data.prepare.index import write_index
from vcycle.data.prepare.journal import Journal
from vcycle.data.prepare.names import INDEX, JOURNAL, REPORT
from vcycle.data.prepare.parts import Part, compare_parts
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
    """How a preparation ended; ``report.json`` in its folder has the same."""

    videos: int
    """Files asked for."""

    kept: int
    """Files that an earlier run had written."""

    failed: Mapping[str, str]
    """Files that could not be prepared, by path, and why. They are left out of the index."""

    damaged: Mapping[str, int]
    """Files of which some frames could not be decoded, by path, and how many. They show the frames before."""

    incomplete: Mapping[str, str]
    """Files of which frames are missing, such as cut ones, by path, and how many. What is there of them is used."""

    left_over: int
    """Files in the folder that belong to none of the videos any more."""

    source_bytes: int
    bytes: int
    """What was read and what is there now."""

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
    """Write a dataset in a form that trains fast, into a folder that ``vcycle train`` takes.

    Each file is whole or absent. A run that was cut short, by whatever means, goes on when it is called again,
    and ends with the same bytes.

    Args:
        splits: Videos by split.
        out: The folder; made if missing.
        settings: What to write.
        workers: Files worked on at a time; one per core by default. The result does not depend on it.
        patience: Seconds without progress after which a file is given up, more for a large one.
        progress: Told how far it is.

    Raises:
        DataError: If the folder holds something else or cannot be written, or no video can be read.
    """
    return Preparation(splits, out, settings, workers=workers, patience=patience).run(progress)


@dataclass(kw_only=True)
class _State:
    """What a run knows so far."""

    records: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Preparation:
    """A preparation that is about to be made."""

    def __init__(
        self,
        splits: Mapping[str, VideoList],
        out: Path,
        settings: PrepareSettings,
        *,
        data: Path | None = None,
        workers: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Find out what there is to do. Writes nothing; see ``prepare_videos``.

        Args:
            splits: Videos by split.
            out: The folder.
            settings: What to write.
            data: What the videos are known by; a folder made from something else is refused. By default where
                the first split was read from.
            workers: Files worked on at a time.
            patience: See ``prepare_videos``.

        Raises:
            DataError: If the folder holds something else.
        """
        self.out = Path(out)
        self.settings = settings
        self.workers = workers or cores()
        self.patience = patience
        self.data = data or next(iter(splits.values())).source
        check_folder(self.out, settings, self.data)
        self.sources: Sources = find_sources(splits)

    def estimate(self) -> Estimate | None:
        """What is left to be done will take, by trying a few files; none if nothing is, or can be read."""
        journal = self._journal()
        left = [file for file in self.sources.files if journal.get("written", file.name, [file.stamp]) is None]
        return estimate_of(left, self.settings, self.workers, self.patience, near=self.out)

    def _journal(self) -> Journal:
        """What earlier runs have done; files whose lines are damaged are done again."""
        return Journal(self.out / JOURNAL, {"measured": _measured, "written": Record.from_json}, lenient=True)

    def check_space(self, estimate: Estimate) -> None:
        """Refuse what will not fit on the disk.

        Raises:
            DataError: If it does not.
        """
        check_space(self.out, estimate)

    def run(self, progress: Progress = lambda *_: None) -> PrepareReport:
        """Make it; see ``prepare_videos``."""
        start = time.monotonic()
        state = _State()
        with locked_folder(self.out, self.settings, self.data):
            try:
                with self._journal() as journal, Crew(self.workers, patience=self.patience) as crew:
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
                done = f"{len(state.records)} of {len(self.sources.files)} videos are done and kept"
                raise DataError(f"{error}; {done}: make room and run the same command again") from error
        return report

    def _places(
        self, crew: Crew, journal: Journal, state: _State, progress: Progress
    ) -> dict[str, tuple[Place | None, ...]]:
        """Of arrays: where each video that can be measured is to lie. Nothing for videos."""
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
        crew: Crew,
        journal: Journal,
        state: _State,
        places: Mapping[str, tuple[Place | None, ...]],
        progress: Progress,
    ) -> int:
        """Keep what an earlier run wrote, if it is what it was; returns how many files that is."""
        found = [
            (file, record)
            for file in self.sources.files
            if (record := journal.get("written", file.name, [file.stamp])) is not None
            and self._in_place(record, places.get(file.name))
        ]
        files = [file for file, _ in found]
        payloads = [self._written_parts(file, record) for file, record in found]
        record_of = {file.name: record for file, record in found}
        done = self._each(crew, compare_parts, files, payloads, "checking what is there, MB", progress)
        for file, same, cause in done:
            if same and not cause:
                state.records[file.name] = record_of[file.name]
        return len(state.records)

    def _in_place(self, record: Record, places: tuple[Place | None, ...] | None) -> bool:
        """Of arrays: whether a video lies where it now should."""
        if self.settings.to == "video":
            return True
        levels = [level and (level.offset, level.size) for level in record.levels]
        return places is not None and levels == [place and (place.offset, place.size) for place in places]

    def _written_parts(self, file: Source, record: Record) -> list[Part]:
        """What was written of a file, by level."""
        return [
            Part(target, level.offset, level.bytes, level.checksum, self.settings.to == "video")
            for target, level in zip(self._targets(file), record.levels, strict=True)
            if level is not None
        ]

    def _targets(self, file: Source) -> tuple[str, ...]:
        return tuple(str(self.out / self.settings.file(side, file.name)) for side in self.settings.levels)

    def _write(
        self,
        crew: Crew,
        journal: Journal,
        state: _State,
        places: Mapping[str, tuple[Place | None, ...]],
        progress: Progress,
    ) -> None:
        """Write what is left."""
        done = state.records.keys() | state.failures.keys()
        left = [file for file in self.sources.files if file.name not in done]
        if any(file.name in places or file.name in journal.names("written") for file in left):
            # The index of an earlier run would name other frames than those that lie there once one is replaced.
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
            for target in self._targets(file):  # a worker that was killed could not clear up
                partial_of(Path(target)).unlink(missing_ok=True)
            for place in places.get(file.name, ()):
                if place is not None:
                    wipe(place, (journal.get("measured", file.name, [file.stamp]) or (0, 0, 0))[0])

    def _each(
        self,
        crew: Crew,
        function: Function,
        files: Sequence[Source],
        payloads: Sequence[Any],
        what: str,
        progress: Progress,
    ) -> Iterator[tuple[Source, Any, str]]:
        """Run a function on files; gives each file, what came of it, and why nothing did."""
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
