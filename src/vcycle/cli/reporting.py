"""`vcycle report`: writes one HTML page about one or more runs."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.console.output import message
from vcycle.errors import RecipeError, VcycleError
from vcycle.utils.reading import LONGEST, read_text, read_yaml, resolved

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vcycle.config.recipe import RecipeBase
    from vcycle.report.page.runs import RunData, ShownEvaluation
    from vcycle.report.page.studies import Study
    from vcycle.tasks.base import Measure, Splits

__all__ = ["report"]

_FRAMES, _SIDE = 6, 112
"""Frames of each of the worst mistakes, and their side in pixels at most."""


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of `vcycle compare` studies.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The HTML file; by default report.html in the folder of one run, beside the first of several.",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Also print the summary, hardware and versions as Markdown.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Folder to save the page's figures in, as PNG and SVG.")
    ] = None,
    clips: Annotated[
        bool, typer.Option("--clips/--no-clips", help="Show frames of the worst mistakes, read from the run's data.")
    ] = True,
) -> None:
    """Write a self-contained HTML page about runs; it opens offline.

    It shows the results of `vcycle eval` in the run's folder: by class, by clip, and the worst mistakes.
    """
    from vcycle.report.page.html import page
    from vcycle.report.page.markdown import markdown_summary
    from vcycle.train.environment import versions
    from vcycle.utils.atomic import atomic_write
    from vcycle.utils.extras import require

    require("matplotlib")
    held = [run for folder in runs for run in _held(folder)]
    folders = list({resolved(run): run for run in held}.values())
    found = [_read(folder, _name(folder, folders), clips=clips) for folder in folders]
    studies = {_name(folder, runs): study for folder in runs if (study := _study(folder)) is not None}
    compared = [folder for folder in runs if _name(folder, runs) in studies]
    of_studies = [run.name for run in found if Path(run.folder).parent.parent in compared]
    out = _page_of(runs) if out is None else out
    text = page(found, versions=versions(), studies=studies, of_studies=of_studies)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out) as file:
            file.write(text.encode(errors="backslashreplace"))  # file names may be invalid UTF-8
    except OSError as error:
        raise VcycleError(f"page {out} cannot be written: {error.strerror or error}") from error
    message(f"page: {out}")
    if figures is not None:
        _save_figures(found, figures)
    if markdown:
        print(markdown_summary(found, {name: study.said for name, study in studies.items()}), end="")


def _page_of(runs: Sequence[Path]) -> Path:
    """Where a page goes without `--out`."""
    first = runs[0]
    if len(runs) > 1:
        first = first.parent if first.name not in ("", "..") else resolved(first).parent
    return first / "report.html"


def _save_figures(runs: "Sequence[RunData]", folder: Path) -> None:
    """Save each figure of the page as PNG and SVG.

    Raises:
        VcycleError: if they cannot be written.
    """
    from vcycle.report.page import figures

    pictures = {"accuracy": figures.accuracy(runs)}
    for run, name in zip(runs, _file_names([run.name for run in runs]), strict=True):
        pictures |= {
            f"{name}-schedule": figures.schedule(run),
            f"{name}-loss": figures.loss(run),
            f"{name}-time": figures.split(run),
        }
        for evaluated in run.shown:
            for detail in evaluated.details:
                if detail.drawing is not None:
                    pictures["-".join([name, evaluated.split, *detail.title.lower().split()])] = detail.drawing
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            with figures.drawn(picture) as figure:
                for kind in ("png", "svg"):
                    figure.savefig(folder / f"{name}.{kind}", dpi=200, metadata={"Date": None} if kind == "svg" else {})
    except OSError as error:
        raise VcycleError(f"pictures in {folder} cannot be written: {error.strerror or error}") from error
    message(f"pictures: {folder}")


def _file_names(names: Sequence[str]) -> list[str]:
    """File names for runs: characters that files cannot have become `_`, and duplicates are numbered."""
    found: list[str] = []
    taken: set[str] = set()  # in lower case: some file systems ignore case
    for name in names:
        plain = re.sub(r"[^\w.+-]+", "_", name)
        numbered = (f"{plain}-{number}" for number in count(2))
        own = next(each for each in chain([plain], numbered) if each.lower() not in taken)
        taken.add(own.lower())
        found.append(own)
    return found


def _held(folder: Path) -> list[Path]:
    """The runs in a folder: the folder itself or, for a study, all its runs that have started."""
    from vcycle.train.run import RunFolder

    own = RunFolder(folder).log
    held = sorted(log.parent for log in folder.glob(f"runs/*/{own.name}"))
    return [folder] if own.is_file() or not held else held


def _study(folder: Path) -> "Study | None":
    """A study's comparison; None if the folder has none, or another version of vcycle wrote it.

    Raises:
        VcycleError: if the file cannot be read.
    """
    from vcycle.report.page.studies import study_of

    file = folder / "comparison.json"
    if not file.is_file():
        return None
    try:
        return study_of(json.loads(read_text(file)))
    except (OSError, ValueError, RecursionError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    except (LookupError, TypeError, AttributeError, ArithmeticError):
        message(
            f"{file} is damaged, or another version of vcycle wrote it: the page leaves its verdict out; the same "
            "`vcycle compare` writes it again from its trainings"
        )
        return None


def _read(folder: Path, name: str, *, clips: bool = True) -> "RunData":
    """Read a run's folder.

    Raises:
        VcycleError: if it is not a run, has no step yet, or one of its files is damaged.
    """
    from vcycle.report.page import lines
    from vcycle.report.page.runs import RunData
    from vcycle.tasks.saved_weights import run_meant
    from vcycle.train.run import RunFolder

    run = RunFolder(folder)
    if not run.plan.is_file() or not run.recipe.is_file():
        raise VcycleError(
            f"{folder} is not the folder of a run: it has no {run.plan.name} and {run.recipe.name}{run_meant(folder)}"
        )
    log = _lines(run.log, lines.kind_of)
    steps = [line for line in log if line["event"] == "step"]
    if not steps:
        raise VcycleError(f"{folder} has taken no step yet: there is nothing to report")
    written, recipe = _recipe(run.recipe), _checked_recipe(folder)
    evaluations = [_evaluation(file) for file in sorted(folder.glob("eval-*.json")) if "." not in file.stem]
    return RunData(
        name=name,
        folder=str(folder),
        recipe=written,
        measures=_measures(recipe),
        **_plan(run.plan),
        steps=steps,
        validations=[line for line in log if line["event"] == "validation"],
        notes=_notes(line for line in log if line["event"] == "slow_data"),
        bad=[line for file in run.all_bad_samples for line in _lines(file, lambda _: lines.Replaced)],
        evaluations=evaluations,
        shown=[] if recipe is None else list(_shown(recipe, folder, evaluations, clips=clips)),
        environments=_lines(run.environment, lambda _: lines.Environment),
    )


def _notes(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Notes on waiting for data: stages with the same cause and remedy share a note."""
    waits: dict[str, dict[str, None]] = {}
    for line in lines:
        wait, advice = line.get("wait"), line.get("advice")
        if wait is None or advice is None:  # a log of an earlier version
            wait, advice = line["message"], ""
        waits.setdefault(advice, {})[wait] = None
    notes = [(", ".join(found), advice) for advice, found in waits.items() if advice]
    return [*waits.get("", ()), *(f"{found}: {advice}" for found, advice in notes)]


def _checked_recipe(folder: Path) -> "RecipeBase | None":
    """The recipe of a run; None if this version cannot read it."""
    from vcycle.tasks.recipes import load_recipe

    try:
        return load_recipe(str(folder))
    except RecipeError:
        return None


def _measures(recipe: "RecipeBase | None") -> "Sequence[Measure]":
    """The measures of a run's task, or of all tasks if its recipe is unknown."""
    from vcycle.tasks.base import measures, tasks

    return tuple(measures().values()) if recipe is None else tasks[recipe.task].measures


def _shown(
    recipe: "RecipeBase", folder: Path, evaluations: Sequence[Mapping[str, Any]], *, clips: bool
) -> "Iterator[ShownEvaluation]":
    """What the task shows of each evaluation, with frames of the run's data unless they cannot be read."""
    from vcycle.report.page.runs import ShownEvaluation
    from vcycle.runs.experiment import Experiment
    from vcycle.tasks.base import tasks

    task = tasks[recipe.task]

    @cache
    def present() -> "tuple[RecipeBase, Splits[Any]]":
        found = _with_present_data(recipe, folder.parent)
        return found, Experiment(found, folder.parent).splits

    for evaluation in evaluations:
        try:
            details = task.details(evaluation)
        except (LookupError, TypeError, AttributeError, ValueError):
            message(f"{folder}: the evaluation on {evaluation['split']} is damaged, or of another version: no details")
            continue
        items = [strip.item for detail in details for strip in detail.strips]
        frames = {}
        if items and clips:
            try:
                frames = dict(task.frames(*present(), str(evaluation["split"]), items, count=_FRAMES, side=_SIDE))
            except (VcycleError, OSError) as error:
                message(f"{folder}: no frames of the worst mistakes: {error}")
        if details:
            yield ShownEvaluation(
                split=str(evaluation["split"]), protocol=str(evaluation["protocol"]), details=details, frames=frames
            )


def _with_present_data(recipe: "RecipeBase", work: Path) -> "RecipeBase":
    """The recipe with the folder of its data, be it generated by the run. A report itself generates none.

    Raises:
        VcycleError: if the data is no longer where the run found it.
    """
    from vcycle.data.locations import is_url
    from vcycle.tasks.base import tasks

    made = tasks[recipe.task].embedded_data(recipe, work)
    if made is not None:
        recipe = recipe.model_copy(update={"data": made})
    path = recipe.data.path
    if path is not None and not is_url(str(path)) and not Path(path).exists():
        raise VcycleError(f"its data is not there any more: {path}")
    return recipe


def _lines(file: Path, kind_of: "Callable[[Mapping[str, Any]], type[BaseModel]]") -> list[dict[str, Any]]:
    """Read the objects of a JSON Lines file.

    Args:
        file: The file; it need not exist.
        kind_of: Returns the schema of a line.

    Raises:
        VcycleError: naming the first line that does not match its schema.
    """
    from vcycle.report.page.lines import fault
    from vcycle.utils.jsonl import JsonLines

    found = []
    for number, line in enumerate(JsonLines(file).read(), start=1):
        if (wrong := fault(kind_of(line), line)) is not None:
            raise VcycleError(f"{file}, line {number} is damaged: {wrong}")
        found.append(line)
    return found


def _recipe(file: Path) -> dict[str, Any]:
    """A run's recipe.

    Raises:
        VcycleError: if it cannot be read.
    """
    try:
        found = read_yaml(read_text(file, LONGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise VcycleError(f"{file} is not a recipe: it has no keys")
    return found


def _plan(file: Path) -> dict[str, Any]:
    """Read the plan of a run: its name, stages, steps and summary.

    Raises:
        VcycleError: if the file cannot be read or is damaged.
    """
    from vcycle.plan import Plan
    from vcycle.plan.show import summary
    from vcycle.report.page.lines import Stage, fault

    try:
        plan = Plan.from_json(read_text(file))
        stages = [_stage(stage) for stage in plan.stages]
        told = {"plan": str(plan.name), "stages": stages, "planned_steps": len(plan), "summary": summary(plan)}
    # An edited file may hold values of any type.
    except (OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    for stage in stages:
        if (wrong := fault(Stage, stage)) is not None:
            raise VcycleError(f"{file} is damaged: in a stage, {wrong}")
    return told


def _evaluation(file: Path) -> dict[str, Any]:
    """Read a result file of `vcycle eval`.

    Raises:
        VcycleError: if it is something else.
    """
    from vcycle.report.page.lines import Evaluated, fault
    from vcycle.runs.left_out import read_object

    found = read_object(file)
    if not found:
        raise VcycleError(f"{file} is not a result of `vcycle eval`: it has no keys")
    if (wrong := fault(Evaluated, found)) is not None:
        raise VcycleError(f"{file} is not a result of `vcycle eval`: {wrong}")
    return found


def _stage(stage: Any) -> dict[str, Any]:
    base = stage.base
    return {"name": stage.name, "steps": stage.steps, "frames": base.frames, "size": base.size, "batch": base.batch}


def _name(folder: Path, runs: list[Path]) -> str:
    """A folder's name, or its path if another run's folder has the same name."""
    name = resolved(folder).name
    name = name if sum(resolved(other).name == name for other in runs) == 1 else str(folder)
    return name.encode(errors="backslashreplace").decode()  # invalid UTF-8 cannot be drawn
