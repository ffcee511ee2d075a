"""Implements `vcycle upscale`, which upscales a video ×4."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vcycle.console.arguments import Json
from vcycle.console.figures import check_figure, save_figure
from vcycle.console.output import message, print_json, result
from vcycle.console.progress import progress
from vcycle.errors import VcycleError
from vcycle.tasks.superres.scale import CRF, SCALE

if TYPE_CHECKING:
    from torch import nn

    from vcycle.data.info import VideoInfo
    from vcycle.tasks.superres.models.clips import Restorer

__all__ = ["upscale"]


def upscale(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A run folder, or weights: exported, from BasicSR or mmagic.")
    ],
    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="A video file, or an image folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .mp4, .mov or .mkv.")],
    frame_rate: Annotated[
        float | None, typer.Option("--frame-rate", help="Frame rate of an image folder, in frames per second.")
    ] = None,
    chunk: Annotated[
        int, typer.Option("--chunk", min=1, help="Frames restored at a time; fewer need less memory.")
    ] = 15,
    overlap: Annotated[
        int, typer.Option("--overlap", min=0, help="Extra frames on either side of a chunk, as context for the model.")
    ] = 4,
    crf: Annotated[
        int, typer.Option("--crf", min=0, max=51, help="H.264 quality: 17 looks lossless, 23 is smaller.")
    ] = CRF,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="Save the middle frame as an image: bicubic next to the model.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", help="The original in full size, shown in --compare, with PSNR (Y) in dB."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: a GPU if available.")] = "auto",
    json: Json = False,
) -> None:
    """Upscale a video ×4. Frame rate, time stamps, colors, pixel aspect ratio and audio are kept.

    Memory does not grow with the video's length. An interrupted command leaves no output file. A GPU uses the precision
    of the training, a CPU uses fp32.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise VcycleError(f"--device {device!r} is unknown: auto, cpu or cuda")
    from vcycle.data.video.writing import check_other

    check_other(out, video, f"--out {out}")
    if compare is not None:
        check_figure(compare)  # before the long part
    elif reference is not None:
        raise VcycleError("--reference is shown in the image of --compare: give its name with --compare FILE")

    import torch

    from vcycle.data.prepare.decoding import open_whole
    from vcycle.tasks.superres.figures import compared_panels, restored_figure
    from vcycle.tasks.superres.restoring import check_rate, middle_frame, restore_video
    from vcycle.train.threads import use_threads

    check_rate(str(video), frame_rate)
    if device == "cuda" and not torch.cuda.is_available():
        raise VcycleError("--device is cuda, but torch finds no CUDA device: use cpu or auto")
    where = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    use_threads("auto", on_message=message)
    network, description, precision = _opened(model)
    message(f"{model}: {description}")
    info = open_whole(str(video), frame_rate).info
    message(f"{video}: {info.frames:,} frames of {info.width} × {info.height}, {info.fps:.5g} per second")
    truth = None
    if reference is not None:
        rate = frame_rate if reference.is_dir() else None
        _check_reference(reference, open_whole(str(reference), rate).info, video, info)
        truth = middle_frame(str(reference), rate)
    with progress() as shown:
        missing, bicubic, restored = restore_video(
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
            on_fault=lambda fault: message(f"warning: {fault}"),
        )
    if compare is not None:
        panels = compared_panels(bicubic, restored, truth)
        save_figure(restored_figure(panels), compare, dpi="figure")
        message(f"the middle frame: {'; '.join(title for title, _ in panels)}")
    if json:
        print_json(
            {
                "out": str(out),
                "frames": info.frames,
                "width": SCALE * info.width,
                "height": SCALE * info.height,
                "missing": missing,
            }
            | ({"incomplete": info.incomplete} if info.incomplete else {})
        )
        return
    result(f"{out}: {info.frames:,} frames of {SCALE * info.width} × {SCALE * info.height}")


def _check_reference(reference: Path, original: "VideoInfo", video: Path, info: "VideoInfo") -> None:
    """Refuse an original that is not the video in full size."""
    expected = (info.frames, SCALE * info.width, SCALE * info.height)
    found = (original.frames, original.width, original.height)
    if found != expected:
        raise VcycleError(
            f"--reference {reference} has {found[0]:,} frames of {found[1]} × {found[2]}; the original of {video} has "
            f"{expected[0]:,} of {expected[1]} × {expected[2]}"
        )


def _opened(model: Path) -> "tuple[nn.Module, str, str]":
    """Load a model from a run, an exported file or bare weights; returns it with a description and its precision."""
    from vcycle.tasks.saved_weights import is_exported, run_of

    if not model.is_dir() and run_of(model) is None and not is_exported(model):
        from vcycle.tasks.superres.weights.network import open_network

        opened = open_network(model)
        return opened.model, opened.description, "fp32"
    from vcycle.tasks.loaded_model import load_model
    from vcycle.tasks.superres.task import SUPERRESOLUTION

    run = load_model(model, message, accepted=[SUPERRESOLUTION.name])
    description = f"{run.recipe.model.name} after step {run.step:,}"
    return run.model, description, run.recipe.run.precision
