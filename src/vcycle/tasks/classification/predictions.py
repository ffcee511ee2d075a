"""Predictions of many files, written to a folder by an engine or in parts; an interrupted run resumes.

The files are cut into chunks. A chunk is predicted at once, so the result depends neither on the engine nor on the
parts, and the end of a worker costs its chunk.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vcycle.data.engines.jobs import Engine, Job, Progress, Tell, each
from vcycle.data.layouts.files import printable
from vcycle.data.locations import Location, write_text
from vcycle.data.prepare.folder import check_folder, locked_folder, read_json
from vcycle.data.prepare.journal import Journal
from vcycle.data.prepare.names import journal_of
from vcycle.data.prepare.parts import Part, PartResult, finished_parts, refuse_mixed
from vcycle.data.prepare.sources import Source, look_at
from vcycle.data.stamp import Stamp, stamp_of
from vcycle.errors import DataError
from vcycle.tasks.classification.opening import open_classifier, open_predictor
from vcycle.tasks.classification.predictor import Predictor
from vcycle.tasks.saved_weights import run_of
from vcycle.train.run import RunFolder

__all__ = ["PREDICTIONS", "PredictTask", "PredictionReport", "Predictions", "has_failed", "predict_files"]

PREDICTIONS = "predictions.jsonl"
"""The file of all predictions, in the order of the files."""

_CHUNK = 16
_LOADING = 600.0  # seconds that a worker may take to load the model, perhaps from a slow disk


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictTask:
    """Files to predict."""

    model: str
    overrides: tuple[str, ...]
    files: tuple[str, ...]
    top: int
    window: float | None = None
    stride: float | None = None


@dataclass(frozen=True, kw_only=True)
class PredictionReport:
    """Result of a run."""

    files: int
    failed: int
    """Number of files that could not be read."""

    redone: Mapping[str, str]
    """First files of the chunks that were started again because the process or the node died: its end, by path."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    name: str
    files: tuple[Source, ...]

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        return tuple(file.stamp for file in self.files)


class Predictions:
    """Predictions of files in a folder."""

    def __init__(
        self,
        out: Location,
        model: Path,
        files: Sequence[str],
        overrides: Sequence[str],
        top: int,
        part: Part | None = None,
        *,
        window: float | None = None,
        stride: float | None = None,
    ) -> None:
        """Find out what is left to do. Writes nothing.

        Args:
            out: The folder.
            model: The model, as for ``load_model``.
            files: Paths or URLs.
            overrides: Changes to the model's recipe.
            top: Number of classes per file.
            part: The part of the files to predict; by default all.
            window: Seconds of a time window, if files are cut into windows.
            stride: Seconds from window to window.

        Raises:
            DataError: If the folder has other content.
        """
        self._out, self._part = out, part
        self._model, self._overrides, self._top = str(model), tuple(overrides), top
        self._window, self._stride = window, stride
        self._content: dict[str, Any] = {"model": self._model, "changes": list(overrides), "top": top}
        self._content |= {"window": window, "stride": stride}
        self._content |= {"weights": list(stamp_of(_weights(model))), "files": PartResult.digest(files)}
        check_folder(out, self._content, data=None, command="predict")
        sources = [Source(name=file, path=file, frame_rate=None) for file in files]
        self._chunks = [
            _Chunk(f"{first:09}", tuple(sources[first : first + _CHUNK])) for first in range(0, len(sources), _CHUNK)
        ]

    def run(self, engine: Engine, progress: Progress = lambda *_: None) -> PredictionReport:
        """Predict what is left.

        Args:
            engine: What runs the chunks.
            progress: Called with the current activity, the MB done and the total MB.

        Raises:
            DataError: If the folder cannot be written, or the model cannot be used.
        """
        start = time.monotonic()
        part = self._part
        chunks = self._chunks if part is None else part.select(self._chunks)
        redone: dict[str, str] = {}
        look_at([file for chunk in chunks for file in chunk.files])
        if read_json(self._out / "predict.json") is None:
            open_classifier(Path(self._model), self._overrides)  # one that cannot be used leaves no folder behind
        refuse_mixed(self._out, part, "predict")
        locked = [] if part is None else [part.folder(self._out)]
        with locked_folder(self._out, self._content, data=None, command="predict", parts=locked):
            with self._journal(part) as journal, engine as running:
                left = [chunk for chunk in chunks if journal.get("rows", chunk.name, chunk.stamps) is None]
                jobs = [
                    Job(
                        payload=PredictTask(
                            model=self._model,
                            overrides=self._overrides,
                            files=_paths(chunk),
                            top=self._top,
                            window=self._window,
                            stride=self._stride,
                        ),
                        size=sum(stamp.size for stamp in chunk.stamps),
                        loading=_LOADING,
                        by="worker",
                    )
                    for chunk in left
                ]
                for number, outcome in each(running, predict_files, jobs, "predicting, MB", progress):
                    chunk = left[number]
                    if outcome.redone:
                        redone[chunk.files[0].path] = outcome.redone
                    if outcome.cause:
                        raise DataError(
                            f"{chunk.files[0].path} and the {len(chunk.files) - 1} after it: {outcome.cause}"
                        )
                    journal.note("rows", chunk.name, outcome.result, chunk.stamps)
                rows = [row for chunk in chunks for row in journal.get("rows", chunk.name, chunk.stamps)]
            failed = sum(map(has_failed, rows))
            if part is None:
                self._write(rows)
            else:
                PartResult(
                    settings=self._content,
                    names=PartResult.digest(chunk.name for chunk in chunks),
                    failed={},
                    redone=redone,
                    seconds=time.monotonic() - start,
                ).write(part.folder(self._out))
        return PredictionReport(files=len(rows), failed=failed, redone=redone)

    def merge(self) -> PredictionReport:
        """Write the predictions of all parts, as one run would.

        Raises:
            DataError: If a part is missing, or is of another model, files or options.
        """
        results = finished_parts(self._out, self._content, [chunk.name for chunk in self._chunks], "predict")
        rows_of: dict[str, Any] = {}
        redone: dict[str, str] = {}
        look_at([file for chunk in self._chunks for file in chunk.files])
        locked = [part.folder(self._out) for part in results]
        with locked_folder(self._out, self._content, data=None, command="predict", parts=locked, merge=True):
            for part, result in results.items():
                journal = self._journal(part)
                redone |= result.redone
                for chunk in part.select(self._chunks):
                    found = journal.get("rows", chunk.name, chunk.stamps)
                    if found is None:
                        raise DataError(
                            f"{chunk.files[0].path} or a file after it has changed since part {part} was written: "
                            f"run --part {part}"
                        )
                    rows_of[chunk.name] = found
            rows = [row for chunk in self._chunks for row in rows_of[chunk.name]]
            self._write(rows)
        return PredictionReport(files=len(rows), failed=sum(map(has_failed, rows)), redone=redone)

    def _journal(self, part: Part | None) -> Journal:
        folder = self._out if part is None else part.folder(self._out)
        return Journal(journal_of(folder), {"rows": list}, lenient=True)

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        text = printable("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        place = self._out / PREDICTIONS
        try:
            write_text(place, text)
        except OSError as error:
            raise DataError(f"{place}: cannot be written: {error.strerror or error}") from error


def _weights(model: Path) -> Path:
    """Return what holds a model's weights: of a run, other files change too."""
    return RunFolder(model).checkpoints if model.is_dir() and run_of(model) is not None else model


def _paths(chunk: _Chunk) -> tuple[str, ...]:
    return tuple(file.path for file in chunk.files)


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether a file, or a window of it, could not be read."""
    return "error" in row or any("error" in part for part in row.get("windows", ()))


def predict_files(task: PredictTask, tell: Tell) -> list[dict[str, Any]]:
    """Predict a chunk of files; runs in a worker, which keeps its model.

    Raises:
        VcycleError: If the model cannot be used.
    """
    found: list[dict[str, Any]] = []
    predictor = _predictor(task.model, task.overrides)
    tell(0.0)
    rows = predictor.rows(
        task.files,
        task.top,
        window=task.window,
        stride=task.stride,
        on_window=lambda _: tell(len(found) / len(task.files)),
    )
    for row in rows:
        found.append(row)
        tell(len(found) / len(task.files))
    places: dict[str, list[int]] = {}  # a file may be listed twice
    for number, path in reversed(list(enumerate(task.files))):
        places.setdefault(path, []).append(number)
    return sorted(found, key=lambda row: places[next(iter(row.values()))].pop())


@lru_cache(maxsize=1)
def _predictor(model: str, overrides: tuple[str, ...]) -> Predictor:
    return open_predictor(Path(model), overrides, _CHUNK)
