"""A video file restored: every frame four times as wide and high, its time stamps and sound kept."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vcycle.data.prepare.decoding import Whole, to_rgb, whole_of
from vcycle.data.video import VideoError, probe
from vcycle.data.video.writing import written_video
from vcycle.nn.precision import at_precision
from vcycle.tasks.superres.metrics import check_restored, to_uint8
from vcycle.tasks.superres.models.blocks import SCALE
from vcycle.tasks.superres.models.clips import Restorer, chunked

__all__ = ["restore_file", "side_by_side"]


def restore_file(
    model: Restorer,
    source: str,
    out: Path,
    *,
    device: torch.device,
    chunk: int,
    overlap: int,
    crf: int,
    precision: str = "fp32",
    progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Restore a video, a chunk of frames at a time: memory does not grow with its length.

    Args:
        model: A network in evaluation mode, on the device.
        source: A video file.
        out: The file to be written, H.264; there once it is whole.
        device: Where the model is.
        chunk: Frames restored at a time.
        overlap: Frames more on either side, for the network to see.
        crf: Quality of the H.264, as x264 counts.
        precision: What the network computes in: `fp32`, `bf16` or `fp16`.
        progress: Told how many frames are done, of how many.

    Returns:
        How many frames could not be decoded and show another instead.

    Raises:
        VideoError: if the source cannot be read.
        DataError: if the file cannot be written, the source's sound does not fit into it, or what the network makes of
            the video is not all numbers.
    """
    whole = _opened(source)
    size = (whole.info.height, whole.info.width)
    missing: list[int] = []
    frames = (pixels.to(device) for pixels in _frames(whole, size, missing))
    with (
        written_video(
            out,
            size=(SCALE * size[0], SCALE * size[1]),
            clock=whole.clock,
            rate=whole.info.fps,
            sound_of=source,
            crf=crf,
        ) as writer,
        at_precision(precision, device),
    ):
        for number, frame in enumerate(chunked(model, frames, length=chunk, overlap=overlap)):
            check_restored(frame, source, precision)
            writer.put(to_uint8(frame).permute(1, 2, 0).cpu().numpy(), int(whole.pts[number]))
            progress(number + 1, whole.info.frames)
    return len(missing)


def side_by_side(source: str, restored: Path, number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A frame enlarged by bicubic interpolation, and beside it as it was restored: uint8 ``(4H, 8W, 3)``.

    Raises:
        VideoError: if it cannot be read.
    """
    from vcycle.data.video import read_frames

    index = probe(source)
    frame = torch.from_numpy(read_frames(index, [number]).pixels).permute(0, 3, 1, 2).float() / 255
    enlarged = functional.interpolate(frame, scale_factor=SCALE, mode="bicubic", align_corners=False)
    left = to_uint8(enlarged)[0].permute(1, 2, 0).numpy()
    return np.concatenate([left, read_frames(probe(str(restored)), [number]).pixels[0]], axis=1)


def _opened(source: str) -> Whole:
    whole = whole_of(probe(source))
    if not whole.info.frames:
        raise VideoError(source, "has no frames")
    return whole


def _frames(whole: Whole, size: tuple[int, int], missing: list[int]) -> Iterator[Tensor]:
    """Frames ``(3, H, W)`` in 0..1, RGB."""
    for number, (frame, filled) in enumerate(whole.frames):
        if filled:
            missing.append(number)
        pixels = torch.from_numpy(to_rgb(frame, whole.rotation, size).to_ndarray())
        yield pixels.permute(2, 0, 1).float() / 255
