"""The commands of a task: its own, and its share of `vcycle check`, `prepare`, `import`, `eval` and `demo`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vcycle.errors import RecipeError
from vcycle.tasks.base.part import F, Part, Progress, R

if TYPE_CHECKING:
    from pathlib import Path

    from vcycle.data import CheckReport
    from vcycle.data.locations import Location

__all__ = ["CheckOptions", "Demo", "PrepareOptions", "Preparer", "TaskCommands"]


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A comparison on generated data; it takes minutes and needs no network connection."""

    recipe: str
    """The shipped recipe."""
    plans: tuple[str, ...]
    """The plans to compare."""
    about: str
    """What it shows: `digits in motion`."""
    folder: str
    """The default output folder."""
    seeds: int
    """The default number of seeds."""
    margin: float | None = None
    """The non-inferiority margin, in the unit of the measure's differences; by default the measure's."""
    as_data: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Converts the data of the comparison to what `--json` prints."""
    make: "Callable[[Path, Progress], Sequence[str]]" = lambda folder, progress: ()
    """Generates the data in a folder; returns the recipe overrides that point to it."""
    draw: "Callable[[Mapping[str, Path], Path], None]" = lambda runs, folder: None
    """Draws the output of the trained models. Called with one run folder per plan, and the folder to write to."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of `vcycle check`."""

    folder: "Location"
    recipe: str | None
    """The recipe's name, if one is given."""
    overrides: Sequence[str]
    """Changes to the recipe's section `data`, among them the layout."""
    quick: bool
    """Whether to read packets without decoding."""
    workers: int | None
    timeout: float | None
    """The command-line value."""
    patience: float
    """Seconds without progress after which a file counts as unreadable."""


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """The options of `vcycle prepare` in any format."""

    data: str
    out: "Location"
    to: str
    workers: int | None
    dry_run: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class Preparer:
    """A format of `vcycle prepare`."""

    about: str
    """What it writes: `uncompressed frames`."""
    function: str
    """``module:function``. It is called with `PrepareOptions` and its own options: keyword-only parameters that typer
    reads. It returns the share of files that failed. Its module imports no torch."""


class TaskCommands(Part[R, F]):
    """The commands of a task."""

    commands: ClassVar[Mapping[str, str]] = {}
    """Task-specific commands: maps a name to `module:function`."""
    eval_options: ClassVar[str | None] = None
    """``module:function``, whose keyword-only parameters are options of `vcycle eval`, as typer reads them. It returns
    overrides of the recipe. Its module imports no torch."""
    preparers: ClassVar[Mapping[str, Preparer]] = {}
    """Formats of `vcycle prepare --to NAME`."""
    importers: ClassVar[Mapping[str, str]] = {}
    """Importers of other tools' configurations for `vcycle import`: maps a tool to ``module:attribute`` of a
    `vcycle.tasks.importing.Importer`."""
    demo: ClassVar[Demo | None] = None

    def owns(self, folder: "Path") -> bool:
        """Whether a folder holds data that this task, and no other, has prepared."""
        return False

    def check_files(
        self, recipe: R | None, options: CheckOptions, progress: Progress, on_message: Callable[[str], None]
    ) -> "tuple[CheckReport, str]":
        """Check the files of a dataset, for `vcycle check`.

        Args:
            recipe: The recipe for the data; None for a folder that the task `owns`.
            options: The options of the command.
            progress: Called with the progress.
            on_message: Called with notes for the user.

        Returns:
            The report, and the name of one item.
        """
        raise RecipeError(f"task {self.name} cannot check its files")
