"""`vcycle upscale`: a video four times as wide and high."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vcycle.console.arguments import Json
from vcycle.console.figures import check_figure
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import VcycleError
from vcycle.utils.reading import resolved

if TYPE_CHECKING:
    from torch import nn

    from vcycle.tasks.superres.models.clips import Restorer

    pass

__all__ = ["upscale"]

_FASTEST = 1000


def upscale(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A run's folder, or weights: exported, BasicSR's, mmagic's.")
    ],
    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="A video file, or a folder of pictures.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .mp4, .mov or .mkv.")],
    frame_rate: Annotated[
        float | None, typer.Option("--frame-rate", help="Pictures a second, of a folder of pictures.")
    ] = None,
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
    """Restore a video by a factor of four; its frame rate, time stamps, colours, pixel shape and sound are kept.

    Memory does not grow with the video's length. What was cut short leaves no file. A GPU computes at the precision
    that a run was trained at, a CPU in fp32.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise VcycleError(f"--device {device!r} is unknown: auto, cpu or cuda")
    if resolved(out) == resolved(video):
        raise VcycleError(f"--out {out} is the video itself: another file is needed")
    _check_rate(video, frame_rate)
    if compare is not None:
        check_figure(compare)  # before what may take hours

    import torch

    from vcycle.data.prepare.decoding import open_whole
    from vcycle.tasks.superres.restoring import restore_video
    from vcycle.train.threads import use_threads

    if device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("--device is cuda, and torch finds no CUDA device: cpu or auto")
    where = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    use_threads("auto", on_message=message)
    network, description, precision = _opened(model)
    message(f"{model}: {description}")
    info = open_whole(str(video), frame_rate).info
    message(f"{video}: {info.frames:,} frames of {info.width} × {info.height}, {info.fps:.5g} a second")
    if info.incomplete:
        message(f"warning: {video}: {info.incomplete}; what is there is restored")
    with progress() as shown:
        missing, compared = restore_video(
            cast("Restorer", network.to(where)),
            str(video),
            out,
            device=where,
            chunk=chunk,
            overlap=overlap,
            crf=crf,
            frame_rate=frame_rate,
            precision=precision if where.type == "cuda" else "fp32",
            progress=lambda done, total: shown.count("restoring frames", done, total),
        )
    if missing:
        message(f"{missing:,} frames of {video} cannot be decoded: the ones before them are shown")
    if compare is not None:
        from matplotlib.image import imsave

        try:
            compare.parent.mkdir(parents=True, exist_ok=True)
            imsave(compare, compared)
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
            | ({"incomplete": info.incomplete} if info.incomplete else {})
        )
        return
    result(f"{out}: {info.frames:,} frames of {4 * info.width} × {4 * info.height}")


def _check_rate(video: Path, frame_rate: float | None) -> None:
    """Refuse a folder of pictures without a rate, and a rate of a file."""
    if video.is_dir() and frame_rate is None:
        raise VcycleError(f"{video} is a folder: --frame-rate FPS says how many of its pictures are shown a second")
    if frame_rate is None:
        return
    if not video.is_dir():
        raise VcycleError(f"--frame-rate {frame_rate:g} goes with a folder of pictures, and {video} is none")
    if not 0 < frame_rate <= _FASTEST:
        raise VcycleError(f"--frame-rate {frame_rate:g}: above 0 and up to {_FASTEST} pictures a second are accepted")


def _opened(model: Path) -> "tuple[nn.Module, str, str]":
    """A network, what it is in a line, and its precision: of a run or what was exported, or of weights alone."""
    from vcycle.tasks.saved_weights import is_exported, run_of

    if not model.is_dir() and run_of(model) is None and not is_exported(model):
        from vcycle.tasks.superres.weights.network import open_network

        opened = open_network(model)
        return opened.model, opened.description, "fp32"
    from vcycle.tasks.loaded_model import load_model
    from vcycle.tasks.superres.task import SUPERRESOLUTION

    run = load_model(model, message, task=SUPERRESOLUTION.name)
    description = f"{run.recipe.model.name} after step {run.step:,}"
    return run.model, description, run.recipe.run.precision
