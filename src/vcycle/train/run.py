"""The folder of a run: recipe, plan, log, bad samples and checkpoints, and what each file means."""

import json
import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

from vcycle.errors import CheckpointError, VcycleError
from vcycle.plan import Plan
from vcycle.train.checkpoint import checkpoint_name
from vcycle.train.lock import training_lock
from vcycle.utils.atomic import written_whole
from vcycle.utils.folders import make_folder

__all__ = ["JsonLines", "RunFolder", "write_small"]

_SHOWN = 40
"""Characters of a damaged line that a message shows."""


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it needs to go on, and what it found.

    `recipe.yaml` and `plan.json`: what is being done, resolved. `classes.json`: the names of the classes, in the
    order of the model's outputs. `videos.json`: which videos, by digests of their names and labels. `log.jsonl`: one
    line per step and per validation. `bad_samples.jsonl`: the journal of replaced samples. `fit.json`: how each batch
    shape fits into memory. `environment.jsonl`: by which command, machine and versions it was carried out, a line each
    time that it began or went on. `checkpoints/`: the newest two, and the best.
    """

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def recipe(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.yaml"

    @property
    def plan(self) -> Path:
        """The resolved plan."""
        return self.path / "plan.json"

    @property
    def classes(self) -> Path:
        """The names of the classes."""
        return self.path / "classes.json"

    @property
    def videos(self) -> Path:
        """Digests of the names and labels of the videos."""
        return self.path / "videos.json"

    @property
    def fit(self) -> Path:
        """What is known of the memory that each batch shape takes."""
        return self.path / "fit.json"

    @property
    def environment(self) -> Path:
        """What the run was carried out by, each time that it began or went on."""
        return self.path / "environment.jsonl"

    @property
    def log(self) -> Path:
        """The log."""
        return self.path / "log.jsonl"

    @property
    def bad_samples(self) -> Path:
        """The journal of replaced samples."""
        return self.bad_samples_of(0)

    def bad_samples_of(self, rank: int) -> Path:
        """The journal of the samples that a rank replaced."""
        return self.path / (f"bad_samples.{rank}.jsonl" if rank else "bad_samples.jsonl")

    @property
    def all_bad_samples(self) -> list[Path]:
        """The journals of all ranks that the run has had."""
        return sorted(self.path.glob("bad_samples*.jsonl"))

    @property
    def started(self) -> bool:
        """Whether the folder holds a run. One that ended before it had anything to tell does not count."""
        checkpoints = {file.name for file in self.checkpoints.glob("*.pt")} - {checkpoint_name(0)}
        return bool(checkpoints) or self.log.exists() or self.bad_samples.exists()

    def prepare(self, plan: Plan, recipe: str | None, *, resume: bool, classes: Sequence[str] | None = None) -> bool:
        """Make the folder and write down what is about to be done, unless it goes on with what is there.

        Returns:
            Whether it goes on.

        Raises:
            VcycleError: if the folder holds a run and `resume` is false, or a recipe that no run has written, or cannot
                be written, or another process trains in it.
        """
        make_folder(self.path, "run folder")
        with training_lock(self.path):
            return self._prepare(plan, recipe, resume=resume, classes=classes)

    def _prepare(self, plan: Plan, recipe: str | None, *, resume: bool, classes: Sequence[str] | None) -> bool:
        if self.started:
            if not resume:
                raise VcycleError(f"{self.path} already holds a run: resume it with --resume, or choose another --out")
            return True
        if recipe is not None and self.recipe.exists() and not self.plan.exists():
            raise VcycleError(f"{self.recipe} is there, and no run has written it: choose another --out")
        write_small(self.plan, plan.to_json(indent=1) + "\n")  # first: beside it, a recipe is a run's
        if recipe is not None:
            write_small(self.recipe, recipe)
        if classes is not None:
            write_small(self.classes, json.dumps(list(classes), indent=1) + "\n")
        return False

    def read_classes(self) -> tuple[str, ...]:
        """The names of the classes.

        Raises:
            CheckpointError: if the run has not written them down, or they cannot be read.
        """
        try:
            names = json.loads(self.classes.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(
                f"the run in {self.path} has no {self.classes.name}: its classes are unknown"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.classes} cannot be read: {error}") from None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
            raise CheckpointError(f"{self.classes} is no list of names of classes")
        return tuple(names)


class JsonLines:
    """A file of one JSON object per line, which grows by whole lines and survives being cut short."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made when something is written."""
        self.path = path
        self._file: TextIO | None = None

    def keep(self, wanted: Mapping[str, int]) -> None:
        """Drop lines at or past a position (`{"step": 100}`), and a last line that was cut short.

        Raises:
            VcycleError: if the file cannot be written, or as `read`.
        """
        if self.path.exists():
            kept = [
                line
                for number, line in self._numbered()
                if all(self._held(number, line, key, int, 0) < end for key, end in wanted.items())
            ]
            write_small(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def read(self, needed: Mapping[str, type] | None = None) -> Iterator[dict[str, Any]]:
        """The objects in the file, one of each line; empty lines and a last one that was cut short are left out.

        Args:
            needed: Keys that each has, and of which kind they are.

        Raises:
            VcycleError: naming the line that is something else; or if the file cannot be read.
        """
        for number, found in self._numbered():
            for key, kind in (needed or {}).items():
                self._held(number, found, key, kind)
            yield found

    def _numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects in the file, with the numbers of their lines."""
        if not self.path.exists():
            return
        try:
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, start=1):
                    found = _object(line)
                    if found is not None:
                        yield number, found
                    elif line.strip() and not _is_cut(line):
                        raise VcycleError(f"{self.path}, line {number} is damaged: {_shown(line)} is no JSON object")
        except OSError as error:
            raise VcycleError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _held(self, number: int, line: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
        """What a line has under a key.

        Raises:
            VcycleError: if it is of another kind.
        """
        value = line.get(key, default)
        if type(value) is not kind:
            wrong = f"is {reprlib.repr(value)}: {kind.__name__} is accepted" if key in line else "is missing"
            raise VcycleError(f"{self.path}, line {number} is damaged: key {key!r} {wrong}")
        return value

    def write(self, **values: Any) -> None:
        """Append an object.

        Raises:
            VcycleError: if the file cannot be written.
        """
        try:
            if self._file is None:
                self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 -- closed by close()
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()
        except OSError as error:
            raise _cannot_be_written(self.path, error) from error

    def sync(self) -> None:
        """Wait until what was written would survive a loss of power.

        Raises:
            VcycleError: if it cannot be written.
        """
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise _cannot_be_written(self.path, error) from error

    def close(self) -> None:
        """Close the file; each line is written already."""
        if self._file is not None:
            # After a failed write, closing tries it again.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None if it is something else."""
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_cut(line: bytes) -> bool:
    """Whether a line may be the beginning of one that was being written; after a loss of power, zeros may follow it."""
    return not line.endswith(b"\n") and line.strip(b"\0")[:1] in (b"", b"{")


def _shown(line: bytes) -> str:
    """The beginning of a line, as a message shows it."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def write_small(path: Path, text: str) -> None:
    """Write a small file so that it is whole or as it was.

    Raises:
        VcycleError: if it cannot be written.
    """
    try:
        with written_whole(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise _cannot_be_written(path, error) from error


def _cannot_be_written(path: Path, error: OSError) -> VcycleError:
    return VcycleError(f"{path} cannot be written: {error.strerror or error}")
