"""`vcycle export`: writes a trained model to a single file."""

from pathlib import Path
from typing import Annotated

import typer

from vcycle.console.arguments import Json, Raw
from vcycle.console.output import message, print_json, result
from vcycle.errors import RecipeError

__all__ = ["export"]

_ENDINGS = {"safetensors": ".safetensors", "torch-export": ".pt2", "onnx": ".onnx"}


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Output file; by default RUN/model.safetensors (.pt2, .onnx)."
        ),
    ] = None,
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="safetensors: weights for vcycle and other libraries; torch-export, onnx: a program without vcycle.",
        ),
    ] = "safetensors",
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NAMES", help="Tensor names in safetensors: vcycle, pyslowfast, basicsr, …"),
    ] = None,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Export the model of a run to a single file.

    It is the newest of the run, or that of a checkpoint. A safetensors file is self-contained: it also holds the
    recipe, the plan and the class names. Every command that takes a model, and `init=FILE`, reads it from any folder.
    A program takes clips of the evaluation's shape in batches of any size; PyTorch or an ONNX runtime runs it.
    """
    if file_format not in _ENDINGS:
        known = list(_ENDINGS)
        raise RecipeError(f"--format {file_format!r} is unknown: {', '.join(known[:-1])} or {known[-1]}")
    ending = _ENDINGS[file_format]
    if out is not None and out.suffix != ending:
        raise RecipeError(f"--out {out}: a name that ends in {ending} is accepted")
    if to is not None and file_format != "safetensors":
        raise RecipeError(f"--to {to} names tensors of safetensors; --format {file_format} writes a program")
    from vcycle.runs.export import OWN, namings
    from vcycle.tasks.saved_weights import read_saved, run_meant, run_of

    if to is not None and to not in (known := list(namings())):
        raise RecipeError(f"--to {to!r} is unknown: {', '.join(known[:-1])} or {known[-1]}")

    folder = run_of(run)
    file = out or ((folder or run) / f"{'model' if run.is_dir() else run.stem}{ending}")
    if folder is None and not run.is_dir():
        raise RecipeError(f"{run} is not the folder of a run{run_meant(run)}")
    saved = read_saved(run, message, raw=raw)
    step = 0 if saved.trained is None else saved.trained.step
    about = {"run": str(run), "file": str(file), "format": file_format, "step": step}
    if file_format == "safetensors":
        from vcycle.runs.export import export as write

        tensors = write(saved, file, naming=to or OWN)
        classes = (
            ", the plan and the names of the classes" if saved.trained and saved.trained.classes else " and the plan"
        )
        about |= {"tensors": tensors, "naming": to or OWN}
        said = f"{tensors:,} tensors after step {step:,}, with the recipe{classes}"
    else:
        from vcycle.runs.export_program import export_program

        facts = export_program(saved, file, file_format, message)
        about |= facts
        said = f"{file_format} program after step {step:,} for inputs {' × '.join(facts['input'])}"
    if json:
        print_json(about)
    else:
        result(f"{file}: {said}")
