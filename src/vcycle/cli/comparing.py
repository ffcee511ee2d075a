"""`vcycle compare`: plans of a recipe over shared seeds."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json, Out, Overrides, RecipeArgument

__all__ = ["compare"]


def compare(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    out: Out = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The loss that you accept, in points or dB: is more ruled out?  [default: 1 point, or 0.05 dB]"
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Tell when validation reaches this, such as 0.95, or 27.5 dB.  [default: where constant ends]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train several plans over shared seeds, and compare them.

    `vcycle compare RECIPE plan=constant,long+short,cascade seeds=5`; each plan's LR-matched control is trained too,
    unless controls are named. A study that was interrupted resumes.
    """
    from vcycle.cli.studies import plan_names, seed_range, study
    from vcycle.tasks.base import tasks
    from vcycle.tasks.recipes import load_given

    own = ("plan=", "seeds=")
    loaded = load_given(recipe, [text for text in overrides or () if not text.startswith(own)])
    chosen = {"plan": ",".join(tasks[loaded.task].compared), "seeds": "2"}
    chosen |= dict(text.split("=", 1) for text in overrides or () if text.startswith(own))
    plans, seeds = plan_names(chosen["plan"]), seed_range(chosen["seeds"])
    folder = out or Path("runs") / f"compare-{Path(recipe).stem}"
    study(loaded, plans, seeds, folder, title=recipe, json=json, margin=margin, target=target)
