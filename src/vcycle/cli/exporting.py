"""`vcycle export`: writes a trained model to a single file."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json, Raw
from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

__all__ = ["export"]

_ENDING = ".safetensors"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output file; by default RUN/model.safetensors."),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="NAMES", help="Naming scheme of the tensors: vcycle, pyslowfast, basicsr, …")
    ] = "vcycle",
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Export the weights of a run to a single file.

    They are the newest of the run, or those of a checkpoint. The file (safetensors) is self-contained: it
    also holds the recipe, the plan and the class names. Every command that takes a model, and `init=FILE`, reads it
    from any folder.
    """
    if out is not None and out.suffix != _ENDING:
        raise RecipeError(f"--out {out}: a name that ends in {_ENDING} is accepted")
    from vcycle.runs.export import export as write
    from vcycle.runs.export import namings
    from vcycle.tasks.saved_weights import read_saved, run_meant, run_of

    if to not in (known := namings()):
        raise RecipeError(f"--to {to!r} is unknown: {', '.join(known[:-1])} or {known[-1]}")

    folder = run_of(run)
    file = out or ((folder or run) / f"{'model' if run.is_dir() else run.stem}{_ENDING}")
    if folder is None and not run.is_dir():
        raise RecipeError(f"{run} is not the folder of a run{run_meant(run)}")
    saved = read_saved(run, message, raw=raw)
    tensors = write(saved, file, naming=to)
    step = 0 if saved.trained is None else saved.trained.step
    if json:
        print_json({"run": str(run), "file": str(file), "step": step, "tensors": tensors, "naming": to})
    else:
        classes = (
            ", the plan and the names of the classes" if saved.trained and saved.trained.classes else " and the plan"
        )
        result(f"{file}: {tensors:,} tensors after step {step:,}, with the recipe{classes}")
