"""`vcycle compare`: trains plans of a recipe over shared seeds and compares them."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json, Out, Overrides, RecipeArgument
from vcycle.tasks.base import measures, tasks

__all__ = ["compare"]

_MARGINS = ", ".join(f"{measure.scale * measure.margin:g} ({measure.name})" for measure in measures().values())


def compare(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    out: Out = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help=f"Non-inferiority margin: the largest acceptable loss.  [default: {_MARGINS}, by the measure]"
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Report the time until validation reaches this value, in the unit of the measure, or as a share.  "
            "[default: the final value of constant]"
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=1, help="Trainings at a time; they share the cores, and take the GPUs in turn."
        ),
    ] = 1,
    json: Json = False,
) -> None:
    """Train several plans over shared seeds and compare them.

    Example: `vcycle compare RECIPE plan=constant,long+short,cascade seeds=5`. Each plan's LR-matched control is trained
    too, unless you name controls. The same command resumes an interrupted study.
    """
    from vcycle.cli.studies import plan_names, seed_range, study
    from vcycle.tasks.recipes import load_given

    own = ("plan=", "seeds=")
    loaded = load_given(recipe, [text for text in overrides or () if not text.startswith(own)])
    chosen = {"plan": ",".join(tasks[loaded.task].compared), "seeds": "2"}
    chosen |= dict(text.split("=", 1) for text in overrides or () if text.startswith(own))
    plans, seeds = plan_names(chosen["plan"]), seed_range(chosen["seeds"])
    folder = out or Path("runs") / f"compare-{Path(recipe).stem}"
    study(loaded, plans, seeds, folder, title=recipe, json=json, margin=margin, target=target, jobs=jobs)
