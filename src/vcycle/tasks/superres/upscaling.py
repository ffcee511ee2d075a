"""Upscales videos with a loaded model, from Python."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from vcycle.data.given import frames_of
from vcycle.data.video.writing import check_other
from vcycle.errors import DataError
from vcycle.nn.precision import at_precision
from vcycle.tasks.loaded_model import LoadedModel
from vcycle.tasks.prediction import UpscaleOptions, VideoInput
from vcycle.tasks.superres.metrics import check_restored, to_uint8
from vcycle.tasks.superres.models.clips import Restorer, chunked
from vcycle.tasks.superres.restoring import restore_video
from vcycle.tasks.superres.scale import CRF

__all__ = ["upscale"]


def upscale(loaded: LoadedModel, video: VideoInput, out: Path | None, options: UpscaleOptions) -> Tensor | None:
    """Upscale a video; see `vcycle.tasks.loaded_model.LoadedModel.upscale`."""
    model, device = cast("Restorer", loaded.model), loaded.device
    precision = loaded.recipe.run.precision if device.type == "cuda" else "fp32"
    if isinstance(video, str | Path):
        if out is None:
            raise DataError(f"{video}: give out=FILE.mp4, the video to write; frames are returned for an array alone")
        check_other(out, Path(video), f"out={out}")
        restore_video(
            model,
            str(video),
            out,
            device=device,
            chunk=options.chunk,
            overlap=options.overlap,
            crf=CRF if options.crf is None else options.crf,
            frame_rate=options.frame_rate,
            precision=precision,
            on_fault=lambda fault: warnings.warn(fault, stacklevel=2),
        )
        return None
    for name, value in {"out": out, "crf": options.crf, "frame_rate": options.frame_rate}.items():
        if value is not None:
            raise DataError(f"{name}={value}: for a video at a path; the frames of an array are returned, not written")
    frames = frames_of(video, "the video")

    def given() -> Iterator[Tensor]:
        for frame in frames:
            yield (frame.permute(2, 0, 1).float() / 255).to(device)

    restored = []
    with at_precision(precision, device):
        for frame in chunked(model, given(), length=options.chunk, overlap=options.overlap):
            check_restored(frame, "the video", precision)
            restored.append(to_uint8(frame).permute(1, 2, 0).cpu())
    return torch.stack(restored)
