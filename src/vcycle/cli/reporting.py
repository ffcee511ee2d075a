"""`vcycle report`: what happened in a run, or in several, on one page."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.console.output import message
from vcycle.errors import RecipeError, VcycleError
from vcycle.utils.reading import LONGEST, read_text, read_yaml, resolved

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vcycle.report.page.runs import RunData
    from vcycle.tasks.base import Measure

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of what `vcycle compare` has trained.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the summary and what it was found by as Markdown, too.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Folder to save the page's pictures in, as PNG and SVG.")
    ] = None,
) -> None:
    """Write one HTML page about runs, whole in itself: it opens from disk and needs no network."""
    from vcycle.report.page.html import page
    from vcycle.report.page.markdown import markdown_summary
    from vcycle.train.environment import versions
    from vcycle.utils.atomic import atomic_write
    from vcycle.utils.extras import require

    require("matplotlib")
    held = [run for folder in runs for run in _held(folder)]
    folders = list({resolved(run): run for run in held}.values())
    found = [_read(folder, _name(folder, folders)) for folder in folders]
    text = page(found, versions=versions())
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out) as file:
            file.write(text.encode(errors="backslashreplace"))  # names of files may be no text
    except OSError as error:
        raise VcycleError(f"page {out} cannot be written: {error.strerror or error}") from error
    message(f"page: {out}")
    if figures is not None:
        _save_figures(found, figures)
    if markdown:
        print(markdown_summary(found), end="")


def _save_figures(runs: "Sequence[RunData]", folder: Path) -> None:
    """Each picture of the page as two files.

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
    """What runs are called in the names of files: those that differ only in what has no place there are numbered."""
    found: list[str] = []
    taken: set[str] = set()  # in small letters, which some disks do not tell from capital ones
    for name in names:
        plain = re.sub(r"[^\w.+-]+", "_", name)
        numbered = (f"{plain}-{number}" for number in count(2))
        own = next(each for each in chain([plain], numbered) if each.lower() not in taken)
        taken.add(own.lower())
        found.append(own)
    return found


def _held(folder: Path) -> list[Path]:
    """The runs that a folder stands for: itself or, of a study, all that have begun."""
    from vcycle.train.run import RunFolder

    own = RunFolder(folder).log
    held = sorted(log.parent for log in folder.glob(f"runs/*/{own.name}"))
    return [folder] if own.is_file() or not held else held


def _read(folder: Path, name: str) -> "RunData":
    """What a run's folder tells.

    Raises:
        VcycleError: if it is no run, has taken no step, or a file of it is not as a training leaves it.
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
        raise VcycleError(f"{folder} has taken no step yet: there is nothing to tell")
    return RunData(
        name=name,
        folder=str(folder),
        recipe=_recipe(run.recipe),
        measures=_measures(folder),
        **_plan(run.plan),
        steps=steps,
        validations=[line for line in log if line["event"] == "validation"],
        notes=[line["message"] for line in log if line["event"] == "slow_data"],
        bad=[line for file in run.all_bad_samples for line in _lines(file, lambda _: lines.Replaced)],
        evaluations=[_evaluation(file) for file in sorted(folder.glob("eval-*.json")) if "." not in file.stem],
        environments=_lines(run.environment, lambda _: lines.Environment),
    )


def _measures(folder: Path) -> "Sequence[Measure]":
    """What a run's task is judged by; what any is, where this version cannot read the run's recipe."""
    from vcycle.tasks.base import measures, tasks
    from vcycle.tasks.recipes import load_recipe

    try:
        return tasks[load_recipe(str(folder)).task].measures
    except RecipeError:
        return tuple(measures().values())


def _lines(file: Path, kind_of: "Callable[[Mapping[str, Any]], type[BaseModel]]") -> list[dict[str, Any]]:
    """The objects in a file of lines.

    Args:
        file: Which; there may be none.
        kind_of: What a line must hold.

    Raises:
        VcycleError: naming the first line that is not so.
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
        raise VcycleError(f"{file} is no recipe: it has no keys")
    return found


def _plan(file: Path) -> dict[str, Any]:
    """What is told of a run's plan.

    Raises:
        VcycleError: if it cannot be read, or is of no use.
    """
    from vcycle.plan import Plan
    from vcycle.plan.show import summary
    from vcycle.report.page.lines import Stage, fault

    try:
        plan = Plan.from_json(read_text(file))
        stages = [_stage(stage) for stage in plan.stages]
        told = {"plan": str(plan.name), "stages": stages, "planned_steps": len(plan), "summary": summary(plan)}
    # The values of a plan are those of its classes only where nobody has changed them.
    except (OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    for stage in stages:
        if (wrong := fault(Stage, stage)) is not None:
            raise VcycleError(f"{file} is damaged: in a stage, {wrong}")
    return told


def _evaluation(file: Path) -> dict[str, Any]:
    """What `vcycle eval` wrote.

    Raises:
        VcycleError: if it is something else.
    """
    from vcycle.report.page.lines import Evaluated, fault

    try:
        found = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise VcycleError(f"{file} is no evaluation that `vcycle eval` wrote: it has no keys")
    if (wrong := fault(Evaluated, found)) is not None:
        raise VcycleError(f"{file} is no evaluation that `vcycle eval` wrote: {wrong}")
    return found


def _stage(stage: Any) -> dict[str, Any]:
    base = stage.base
    return {"name": stage.name, "steps": stage.steps, "frames": base.frames, "size": base.size, "batch": base.batch}


def _name(folder: Path, runs: list[Path]) -> str:
    """A folder's own name, or its path where another has the same."""
    name = resolved(folder).name
    name = name if sum(resolved(other).name == name for other in runs) == 1 else str(folder)
    return name.encode(errors="backslashreplace").decode()  # it may be no text, which nothing can draw
