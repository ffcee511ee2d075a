"""Upscales a video ×4; time stamps, colors and audio are kept."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vcycle.data.prepare.decoding import Whole, appearance_in, displayed, open_whole
from vcycle.data.video import VideoError
from vcycle.data.video.colors import Appearance, check_convertible
from vcycle.data.video.writing import written_video
from vcycle.errors import DataError
from vcycle.nn.precision import at_precision
from vcycle.tasks.superres.metrics import check_restored, to_uint8
from vcycle.tasks.superres.models.clips import Restorer, chunked
from vcycle.tasks.superres.scale import SCALE

__all__ = ["Restored", "check_rate", "middle_frame", "restore_video"]

_FASTEST = 1000


class Restored(NamedTuple):
    """The result of restoring a video."""

    missing: int
    """Number of frames that could not be decoded and were replaced by another."""

    bicubic: NDArray[np.uint8]
    """The middle frame enlarged by bicubic interpolation, uint8 ``(4H, 4W, 3)``."""

    restored: NDArray[np.uint8]
    """The middle frame as restored, of the same shape."""


def check_rate(source: str, frame_rate: float | None) -> None:
    """Refuse an image folder without a frame rate, and a frame rate for a video file.

    Raises:
        DataError: if the source is such, or the rate is not above 0 and at most 1000.
    """
    is_folder = Path(source).is_dir()
    if is_folder and frame_rate is None:
        raise DataError(
            f"{source} is a folder: give the frame rate of its images with --frame-rate FPS (in Python: frame_rate=FPS)"
        )
    if frame_rate is None:
        return
    if not is_folder:
        raise DataError(f"frame rate {frame_rate:g} applies to image folders only; {source} is a file")
    if not 0 < frame_rate <= _FASTEST:
        raise DataError(f"frame rate {frame_rate:g}: must be above 0 and at most {_FASTEST} frames per second")


def restore_video(
    model: Restorer,
    source: str,
    out: Path,
    *,
    device: torch.device,
    chunk: int,
    overlap: int,
    crf: int,
    frame_rate: float | None = None,
    precision: str = "fp32",
    progress: Callable[[int, int], None] = lambda *_: None,
    on_fault: Callable[[str], None] = lambda _: None,
) -> Restored:
    """Restore a video, a chunk of frames at a time: memory does not grow with its length.

    The model gets the source's code values as RGB, also for HDR. The output file has the source's matrix, primaries,
    transfer and sample aspect ratio.

    Args:
        model: The model in evaluation mode, on the device.
        source: A video file, or an image folder.
        out: The H.264 output file; written atomically.
        device: The device of the model.
        chunk: Frames restored at a time.
        overlap: Extra frames on either side of a chunk, as context for the model.
        crf: H.264 quality, x264's CRF.
        frame_rate: Frame rate of an image folder.
        precision: The precision of the forward pass: `fp32`, `bf16` or `fp16`.
        progress: Called with the number of frames done and the total.
        on_fault: Called with each fault of a source that is restored in spite of it.

    Raises:
        VideoError: if the source cannot be read, or its colors cannot be converted.
        DataError: if the frame rate does not fit the source, the file cannot be written or cannot hold the source's
            audio, or the model's output is not finite.
    """
    check_rate(source, frame_rate)
    whole = open_whole(source, frame_rate)
    if not whole.info.frames:
        raise VideoError(source, "has no frames")
    if whole.info.incomplete:
        on_fault(f"{source}: {whole.info.incomplete}; the readable part is restored")
    appearance = appearance_in(source, frame_rate)
    check_convertible(source, appearance.colors)
    frames = _Frames(whole, appearance, device)
    with (
        written_video(
            out,
            size=(SCALE * whole.info.height, SCALE * whole.info.width),
            clock=whole.clock,
            rate=whole.info.fps,
            appearance=appearance,
            sound_of=None if frame_rate is not None else source,
            crf=crf,
        ) as writer,
        at_precision(precision, device),
    ):
        for number, frame in enumerate(chunked(model, iter(frames), length=chunk, overlap=overlap)):
            check_restored(frame, source, precision)
            if number == frames.middle:
                restored = _picture(to_uint8(frame))
            writer.put(
                _uint16(frame) if appearance.colors.is_hdr else _picture(to_uint8(frame)), int(whole.pts[number])
            )
            progress(number + 1, whole.info.frames)
    if frames.missing:
        on_fault(f"{source}: {frames.missing:,} frames cannot be decoded and repeat another")
    enlarged = functional.interpolate(frames.kept[None], scale_factor=SCALE, mode="bicubic", align_corners=False)
    return Restored(frames.missing, _picture(to_uint8(enlarged)[0]), restored)


def middle_frame(source: str, frame_rate: float | None = None) -> NDArray[np.uint8]:
    """The middle frame of a video, uint8 ``(H, W, 3)``; it is the one that `restore_video` compares.

    Args:
        source: A video file, or an image folder.
        frame_rate: Frame rate of an image folder.

    Raises:
        VideoError: if the source cannot be read.
    """
    whole = open_whole(source, frame_rate)
    frames = _Frames(whole, appearance_in(source, frame_rate), torch.device("cpu"))
    for number, frame in enumerate(frames):
        if number == frames.middle:
            return _picture(to_uint8(frame))
    raise VideoError(source, "has no frames")


class _Frames:
    """Frames ``(3, H, W)`` in 0..1, RGB."""

    def __init__(self, whole: Whole, appearance: Appearance, device: torch.device) -> None:
        self._whole, self._appearance, self._device = whole, appearance, device
        self.middle = whole.info.frames // 2
        """Index of the frame that is kept."""
        self.kept = torch.empty(0)
        self.missing = 0

    def __iter__(self) -> Iterator[Tensor]:
        highest = 65535 if self._appearance.colors.is_hdr else 255
        for number, (picture, filled) in enumerate(displayed(self._whole, self._appearance)):
            self.missing += filled
            pixels = torch.from_numpy(picture.astype(np.float32)).permute(2, 0, 1) / highest
            if number == self.middle:
                self.kept = pixels
            yield pixels.to(self._device)


def _picture(frame: Tensor) -> NDArray[np.uint8]:
    """An image ``(3, H, W)`` as ``(H, W, 3)``."""
    return np.ascontiguousarray(frame.cpu().numpy().transpose(1, 2, 0))


def _uint16(frame: Tensor) -> NDArray[np.uint16]:
    """An image ``(3, H, W)`` in 0..1 as uint16 ``(H, W, 3)``."""
    return _picture(frame.float().clamp(0, 1).mul(65535).round()).astype(np.uint16)
