"""`vcycle report`: what happened in a run, or in several, on one page."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcycle.cli.output import message
from vcycle.errors import VcycleError

if TYPE_CHECKING:
    from vcycle.report.page.runs import RunData

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the summary and what it was found by as Markdown, too.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Folder to save the page's pictures in, as PNG and SVG.")
    ] = None,
) -> None:
    """Write one HTML page about runs, whole in itself: it opens from disk and needs no network."""
    from vcycle.data.whole import written_whole
    from vcycle.report.page.html import page
    from vcycle.report.page.markdown import markdown_summary
    from vcycle.train.environment import versions

    found = [_read(folder, _name(folder, runs)) for folder in runs]
    text = page(found, versions=versions())
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(out) as file:
            file.write(text.encode())
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
    for run in runs:
        name = re.sub(r"[^\w.+-]+", "_", run.name)
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
                    figure.savefig(folder / f"{name}.{kind}", dpi=150, metadata={"Date": None} if kind == "svg" else {})
    except OSError as error:
        raise VcycleError(f"pictures in {folder} cannot be written: {error.strerror or error}") from error
    message(f"pictures: {folder}")


def _read(folder: Path, name: str) -> "RunData":
    """What a run's folder tells.

    Raises:
        VcycleError: if it is no run, or has taken no step.
    """
    import yaml

    from vcycle.plan import Plan
    from vcycle.plan.show import summary
    from vcycle.recipes.opened import run_meant
    from vcycle.report.page.runs import RunData
    from vcycle.train.run import JsonLines, RunFolder

    run = RunFolder(folder)
    if not run.plan.is_file() or not run.recipe.is_file():
        raise VcycleError(
            f"{folder} is not the folder of a run: it has no {run.plan.name} and {run.recipe.name}{run_meant(folder)}"
        )
    log = list(JsonLines(run.log).read())
    steps = [line for line in log if line["event"] == "step"]
    if not steps:
        raise VcycleError(f"{folder} has taken no step yet: there is nothing to tell")
    try:
        plan = Plan.from_json(run.plan.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VcycleError(f"{run.plan} cannot be read: {error}") from None
    evaluations = [_evaluation(file) for file in sorted(folder.glob("eval-*.json"))]
    return RunData(
        name=name,
        folder=str(folder),
        recipe=yaml.safe_load(run.recipe.read_text(encoding="utf-8")),
        plan=plan.name,
        stages=[_stage(stage) for stage in plan.stages],
        planned_steps=len(plan),
        summary=summary(plan),
        steps=steps,
        validations=[line for line in log if line["event"] == "validation"],
        notes=[line["message"] for line in log if line["event"] == "slow_data"],
        bad=[line for file in run.all_bad_samples for line in JsonLines(file).read()],
        evaluations=evaluations,
        environments=list(JsonLines(run.environment).read()),
    )


def _evaluation(file: Path) -> dict[str, Any]:
    """What `vcycle eval` wrote.

    Raises:
        VcycleError: if it is something else.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VcycleError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict) or not {"split", "protocol"} <= found.keys():
        raise VcycleError(f"{file} is no evaluation that `vcycle eval` wrote: it has no split and protocol")
    return found


def _stage(stage: Any) -> dict[str, Any]:
    base = stage.base
    return {"name": stage.name, "steps": stage.steps, "frames": base.frames, "size": base.size, "batch": base.batch}


def _name(folder: Path, runs: list[Path]) -> str:
    """A folder's own name, or its path where another has the same."""
    name = folder.resolve().name
    return name if sum(other.resolve().name == name for other in runs) == 1 else str(folder)
