"""`vcycle upscale`: a video four times as wide and high."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vcycle.console.arguments import Json
from vcycle.console.figures import check_figure
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import VcycleError

if TYPE_CHECKING:
    from torch import nn

    from vcycle.tasks.superres.models.clips import Restorer

__all__ = ["upscale"]


def upscale(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A run's folder, or weights: exported, BasicSR's, mmagic's.")
    ],
    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="A video file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .mp4, .mov or .mkv.")],
    chunk: Annotated[
        int, typer.Option("--chunk", min=1, help="Frames restored at a time; fewer need less memory.")
    ] = 15,
    overlap: Annotated[
        int, typer.Option("--overlap", min=0, help="Frames more that the network sees on either side.")
    ] = 4,
    crf: Annotated[
        int, typer.Option("--crf", min=0, max=51, help="Quality of the H.264: 17 looks lossless, 23 is smaller.")
    ] = 17,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="Save the middle frame, bicubic beside restored, as a picture.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    json: Json = False,
) -> None:
    """Restore a video by a factor of four; its frame rate, time stamps and sound are kept.

    Memory does not grow with the video's length. What was cut short leaves no file. A GPU computes at the precision
    that a run was trained at, a CPU in fp32.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise VcycleError(f"--device {device!r} is unknown: auto, cpu or cuda")
    if out.resolve() == video.resolve():
        raise VcycleError(f"--out {out} is the video itself: another file is needed")
    if compare is not None:
        check_figure(compare)  # before what may take hours

    import torch

    from vcycle.data.video import probe
    from vcycle.tasks.superres.restoring import restore_file, side_by_side

    if device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("--device is cuda, and torch finds no CUDA device: cpu or auto")
    where = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    network, description, precision = _opened(model)
    message(f"{model}: {description}")
    info = probe(str(video)).info
    message(f"{video}: {info.frames:,} frames of {info.width} × {info.height}, {info.fps:.5g} a second")
    with progress() as shown:
        missing = restore_file(
            cast("Restorer", network.to(where)),
            str(video),
            out,
            device=where,
            chunk=chunk,
            overlap=overlap,
            crf=crf,
            precision=precision if where.type == "cuda" else "fp32",
            progress=lambda done, total: shown.count("restoring frames", done, total),
        )
    if missing:
        message(f"{missing:,} frames of {video} cannot be decoded: the ones before them are shown")
    if compare is not None:
        from matplotlib.image import imsave

        try:
            compare.parent.mkdir(parents=True, exist_ok=True)
            imsave(compare, side_by_side(str(video), out, info.frames // 2))
        except (OSError, ValueError) as error:
            raise VcycleError(f"picture {compare} cannot be written: {error}") from error
        message(f"picture: {compare} (bicubic, restored)")
    if json:
        print_json(
            {
                "out": str(out),
                "frames": info.frames,
                "width": 4 * info.width,
                "height": 4 * info.height,
                "missing": missing,
            }
        )
        return
    result(f"{out}: {info.frames:,} frames of {4 * info.width} × {4 * info.height}")


def _opened(model: Path) -> "tuple[nn.Module, str, str]":
    """A network, what it is in a line, and its precision: of a run or what was exported, or of weights alone."""
    from vcycle.runs.loaded_model import is_exported, run_of

    if not model.is_dir() and run_of(model) is None and not is_exported(model):
        from vcycle.tasks.superres.weights.network import open_network

        opened = open_network(model)
        return opened.model, opened.description, "fp32"
    from vcycle.tasks.superres.evaluate import open_run

    run = open_run(model, message)
    description = f"{run.recipe.model.name} after step {run.step:,}"
    return run.model, description, run.recipe.run.precision
