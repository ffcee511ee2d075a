"""The folder of a run: recipe, plan, log, bad samples and checkpoints, and what each file means."""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vcycle.errors import CheckpointError, VcycleError
from vcycle.plan import Plan
from vcycle.train.checkpoint import checkpoint_name
from vcycle.train.lock import LOCK, training_lock
from vcycle.utils.atomic import atomic_text
from vcycle.utils.folders import make_folder
from vcycle.utils.reading import read_text

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it needs to go on, and what it found.

    `recipe.yaml` and `plan.json`: what is being done, resolved. `classes.json`: the names of the classes, in the
    order of the model's outputs. `videos.json`: which videos, by digests of their names and labels, and those left out
    as they cannot be opened. `log.jsonl`: one line per step and per validation. `bad_samples.jsonl`: the journal of
    replaced samples. `fit.json`: how each batch shape fits into memory. `environment.jsonl`: by which command, machine
    and versions it was carried out, a line each time that it began or went on. `checkpoints/`: the newest two, and the
    best.
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
        """Digests of the names and labels of the videos, and which of them are left out."""
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
        first = Path(checkpoint_name(0))
        checkpoints = {path.name for path in self.checkpoints.glob("[sb]*")} - {first.name, first.stem}
        checkpoints = {name for name in checkpoints if not name.endswith(".tmp")}
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
                command = f"vcycle train {shlex.quote(str(self.path))} --resume"
                raise VcycleError(f"{self.path} already holds a run: `{command}` resumes it, or choose another --out")
            return True
        if recipe is not None and self.recipe.exists() and not self.plan.exists():
            raise VcycleError(f"{self.recipe} is there, and no run has written it: choose another --out")
        atomic_text(self.plan, plan.to_json(indent=1) + "\n")  # first: beside it, a recipe is a run's
        if recipe is not None:
            atomic_text(self.recipe, recipe)
        if classes is not None:
            atomic_text(self.classes, json.dumps(list(classes), indent=1) + "\n")
        return False

    @contextmanager
    def withdrawn(self) -> Iterator[None]:
        """Within: an error before the first step leaves the disk as it was. An interruption is none.

        What has been learned or written down of samples stays, and so does what lies here already.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        before = set(self.path.rglob("*"))
        try:
            yield
        except Exception:
            with suppress(OSError, VcycleError):  # another process may have the folder by now
                self._withdraw(before, made)
            raise

    def _withdraw(self, before: set[Path], made: Sequence[Path]) -> None:
        if self.path.is_dir():
            with training_lock(self.path):
                if self.started:
                    return
                new = (path for path in self.path.rglob("*") if path not in before and path.name != LOCK)
                for path in sorted(new, reverse=True):  # what lies in a folder, then the folder
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for folder in made:
            folder.rmdir()

    def read_classes(self) -> tuple[str, ...]:
        """The names of the classes.

        Raises:
            CheckpointError: if the run has not written them down, or they cannot be read.
        """
        try:
            names = json.loads(read_text(self.classes))
        except FileNotFoundError:
            raise CheckpointError(
                f"the run in {self.path} has no {self.classes.name}: its classes are unknown"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.classes} cannot be read: {error}") from None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
            raise CheckpointError(f"{self.classes} is no list of names of classes")
        return tuple(names)
