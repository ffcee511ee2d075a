"""The run folder: recipe, plan, log, bad samples and checkpoints, and the meaning of each file."""

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
from vcycle.utils.atomic import PARTIAL, atomic_text
from vcycle.utils.folders import make_folder
from vcycle.utils.reading import read_text

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """The folder with everything that a run needs to resume, and its results.

    `recipe.yaml` and `plan.json`: the resolved recipe and plan. `classes.json`: the names of the classes, in the order
    of the model's outputs. `videos.json`: digests of the names and labels of the videos, and the videos that cannot be
    opened. `log.jsonl`: one line per step and per validation. `bad_samples.jsonl`: the journal of
    replaced samples. `fit.json`: the micro-batch size of each batch shape. `environment.jsonl`: command, machine and
    versions, one line for each start or resume. `checkpoints/`: the newest two checkpoints, and the best weights.
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
        """Digests of the names and labels of the videos, and the videos left out."""
        return self.path / "videos.json"

    @property
    def fit(self) -> Path:
        """The micro-batch sizes and peak memory of each batch shape."""
        return self.path / "fit.json"

    @property
    def environment(self) -> Path:
        """Command, machine and versions of each start or resume."""
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
        """The journals of all ranks, also of ranks from earlier starts."""
        return sorted(self.path.glob("bad_samples*.jsonl"))

    @property
    def started(self) -> bool:
        """Whether the folder holds a run. A run that ended before its first step does not count."""
        first = Path(checkpoint_name(0))
        checkpoints = {path.name for path in self.checkpoints.glob("[sb]*")} - {first.name, first.stem}
        checkpoints = {name for name in checkpoints if not name.endswith(PARTIAL)}
        return bool(checkpoints) or self.log.exists() or self.bad_samples.exists()

    def prepare(self, plan: Plan, recipe: str | None, *, resume: bool, classes: Sequence[str] | None = None) -> bool:
        """Create the folder and write plan, recipe and classes, unless the run resumes.

        Returns:
            Whether the run resumes.

        Raises:
            VcycleError: if the folder holds a run and `resume` is false, holds a recipe that no run wrote, cannot be
                written, or another process trains in it.
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
            raise VcycleError(f"{self.recipe} exists but was not written by a run: choose another --out")
        atomic_text(self.plan, plan.to_json(indent=1) + "\n")  # first: a recipe beside a plan was written by a run
        if recipe is not None:
            atomic_text(self.recipe, recipe)
        if classes is not None:
            atomic_text(self.classes, json.dumps(list(classes), indent=1) + "\n")
        return False

    @contextmanager
    def withdrawn(self) -> Iterator[None]:
        """Restore the disk if an error occurs within the context before the first step. An interruption is no error.

        Checkpoints, logs and journals stay, and so do files that existed before.
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
                for path in sorted(new, reverse=True):  # the contents of a folder, then the folder
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for folder in made:
            folder.rmdir()

    def read_classes(self) -> tuple[str, ...]:
        """The names of the classes.

        Raises:
            CheckpointError: if the run has no such file, or it cannot be read.
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
            raise CheckpointError(f"{self.classes} is not a list of class names")
        return tuple(names)
