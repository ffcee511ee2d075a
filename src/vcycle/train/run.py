"""The folder of a run: recipe, plan, log, bad samples and checkpoints, and what each file means."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

from vcycle.errors import VcycleError
from vcycle.plan import Plan

__all__ = ["JsonLines", "RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it needs to go on, and what it found.

    `recipe.yaml` and `plan.json`: what is being done, resolved. `log.jsonl`: one line per step and per
    validation. `bad_samples.jsonl`: the journal of replaced samples. `checkpoints/`: the newest two.
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
    def log(self) -> Path:
        """The log."""
        return self.path / "log.jsonl"

    @property
    def bad_samples(self) -> Path:
        """The journal of replaced samples."""
        return self.path / "bad_samples.jsonl"

    def prepare(self, plan: Plan, recipe: str | None, *, resume: bool) -> None:
        """Make the folder and write down what is about to be done.

        Raises:
            VcycleError: if the folder holds a run and `resume` is false, or cannot be written.
        """
        if not resume and self.log.exists():
            raise VcycleError(f"{self.path} already holds a run: resume it with --resume, or choose another --out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.plan.exists():
                if recipe is not None:
                    self.recipe.write_text(recipe, encoding="utf-8")
                self.plan.write_text(plan.to_json(indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise VcycleError(f"run folder {self.path} cannot be written: {error.strerror}") from error


class JsonLines:
    """A file of one JSON object per line, cut back on resume to what the checkpoint knows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def keep(self, wanted: "Mapping[str, int]") -> None:
        """Drop lines at or past a position (`{"step": 100}`), and a last line that was cut short."""
        if not self.path.exists():
            return
        kept = [x for x in self.read() if all(x.get(key, 0) < end for key, end in wanted.items())]
        aside = self.path.with_suffix(".tmp")
        aside.write_text("".join(json.dumps(x) + "\n" for x in kept), encoding="utf-8")
        os.replace(aside, self.path)

    def read(self) -> Iterator[dict[str, Any]]:
        """The objects in the file; a line that a kill cut short ends it."""
        if not self.path.exists():
            return
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    return

    def write(self, **values: Any) -> None:
        """Append an object."""
        if self._file is None:
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 -- closed by __exit__
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
