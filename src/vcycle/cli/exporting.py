"""`vcycle export`: a trained model as one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcycle.console.arguments import Json, Raw
from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

if TYPE_CHECKING:
    from vcycle.runs.export import Naming

__all__ = ["export"]

_ENDING = ".safetensors"
_NAMINGS: tuple["Naming", ...] = ("vcycle", "pyslowfast", "pytorchvideo", "basicsr", "mmagic")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="What to write; by default RUN/model.safetensors."),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="|".join(_NAMINGS), help="Whose names the tensors get.")
    ] = _NAMINGS[0],
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Write a run's newest weights, or those of one of its checkpoints, into one file.

    The file (safetensors) holds the recipe, the plan and the names of the classes too: `vcycle eval`, `vcycle predict`,
    `vcycle upscale` and `init=FILE` take it wherever it is.
    """
    if out is not None and out.suffix != _ENDING:
        raise RecipeError(f"--out {out}: a name that ends in {_ENDING} is accepted")
    naming = next((naming for naming in _NAMINGS if naming == to), None)
    if naming is None:
        raise RecipeError(f"--to {to!r} is unknown: {', '.join(_NAMINGS[:-1])} or {_NAMINGS[-1]}")

    from vcycle.runs.export import export as write
    from vcycle.runs.loaded_model import read_kept, run_meant, run_of

    folder = run_of(run)
    file = out or ((folder or run) / f"{'model' if run.is_dir() else run.stem}{_ENDING}")
    if folder is None and not run.is_dir():
        raise RecipeError(f"{run} is not the folder of a run{run_meant(run)}")
    kept = read_kept(run, message, raw=raw)
    tensors = write(kept, file, naming=naming)
    step = 0 if kept.trained is None else kept.trained.step
    if json:
        print_json({"run": str(run), "file": str(file), "step": step, "tensors": tensors, "naming": naming})
    else:
        classes = (
            ", the plan and the names of the classes" if kept.trained and kept.trained.classes else " and the plan"
        )
        result(f"{file}: {tensors:,} tensors after step {step:,}, with the recipe{classes}")
