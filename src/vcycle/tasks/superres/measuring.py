"""Measures the quality of restored clips. Each whole clip counts once; results carry their protocol."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from vcycle.data import Replacement, VideoError
from vcycle.data.request import answer
from vcycle.errors import DataError
from vcycle.nn.precision import at_precision
from vcycle.plan import Shape
from vcycle.tasks.superres.metrics import (
    FRAMES_AT_ONCE,
    ClipMeter,
    ClipQuality,
    Protocol,
    check_restored,
    mean_quality,
    to_uint8,
)
from vcycle.tasks.superres.models.clips import Restorer, chunked, chunked_mirrored, restore
from vcycle.tasks.superres.objective import video_of
from vcycle.tasks.superres.pairs.dataset import PairedDataset
from vcycle.tasks.superres.pairs.degrade import imresize

__all__ = ["Measured", "Measuring", "Quality", "quality_of", "restore_each"]

_LEAST = 0.005
"""Smallest difference in dB that shows in two decimals."""
_READ = 16
"""Number of frames per read: a decoder starts at a keyframe each time."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How clips are restored and measured."""

    protocol: Protocol = Protocol()  # noqa: RUF009 -- frozen
    """The protocol of the metrics."""
    mirrored: bool = False
    """Restore each clip followed by itself reversed, and average both results."""
    chunk: int | None = None
    """Frames restored at a time, to bound memory; None for the whole clip."""
    overlap: int = 4
    """Extra frames on either side of a chunk."""
    precision: str = "fp32"
    """The precision of the forward pass: `fp32`, `bf16` or `fp16`."""

    def __str__(self) -> str:
        how = "whole clips" if self.chunk is None else f"chunks of {self.chunk} + 2 × {self.overlap} frames"
        words = [str(self.protocol), how, *(["mirrored"] if self.mirrored else [])]
        return ", ".join([*words, self.precision] if self.precision != "fp32" else words)


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The result of an evaluation, with its protocol."""

    psnr: float
    """PSNR in dB: mean over clips of the mean over their frames."""
    ssim: float
    """SSIM, averaged in the same way."""
    samples: int
    """Number of clips, each counted once."""
    frames: int
    """Number of their frames that count."""
    identical: int
    """Number of frames that equal the ground truth, such as black ones; they are excluded from the mean PSNR."""
    unreadable: int
    """Number of unreadable clips, which do not count."""
    protocol: str
    """The evaluation protocol in words."""
    bicubic_psnr: float | None = None
    """PSNR of bicubic interpolation of the low-resolution frames, over the same clips, in dB; None if unknown."""

    @property
    def measure(self) -> str:
        """The name of the main metric."""
        return "PSNR"

    @property
    def value(self) -> float:
        """The value of the main metric, in dB."""
        return self.psnr

    @property
    def headline(self) -> str:
        """Name and value of the main metric, with the PSNR of bicubic interpolation."""
        beside = "" if self.bicubic_psnr is None else f" (bicubic {self.bicubic_psnr:.2f} dB)"
        return f"PSNR {self.psnr:.2f} dB{beside}"

    @property
    def numbers(self) -> dict[str, float]:
        """All metrics to plot over training, by name."""
        return {"psnr": self.psnr, "ssim": self.ssim}

    @property
    def warning(self) -> str | None:
        """A warning if the model is worse than bicubic interpolation; None otherwise."""
        below = 0.0 if self.bicubic_psnr is None else self.bicubic_psnr - self.psnr
        if not below >= _LEAST:
            return None
        return (
            f"the model is {below:.2f} dB below bicubic interpolation ({self.psnr:.2f} against "
            f"{self.bicubic_psnr:.2f} dB). Train for more steps (for a short training, set training.epsilon=0.03), "
            "and check that the low-resolution frames match the clips"
        )


class Measured(NamedTuple):
    """The result for a restored clip."""

    clip: int
    quality: ClipQuality
    bicubic_psnr: float
    """PSNR of bicubic interpolation on it, in dB."""


@torch.no_grad()
def restore_each(
    model: nn.Module,
    dataset: PairedDataset,
    clips: Iterable[int],
    *,
    device: torch.device,
    measuring: Measuring,
    bicubic: dict[int, float] | None = None,
    shape: Shape | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Iterator[Measured | Replacement]:
    """Restore and measure clips one by one.

    With `measuring.chunk`, memory on host and device does not grow with a clip's length: frames are read, restored and
    measured as a stream.

    Args:
        model: The model, on the device; its training or evaluation mode is restored.
        dataset: The clips.
        clips: Indices of the clips to restore.
        device: The device of the model.
        measuring: How clips are restored and measured.
        bicubic: Known PSNRs of bicubic interpolation by clip; those of other clips are added.
        shape: Shape in low-resolution pixels of the center part of each clip to use, as in training at this shape; by
            default the whole clip.
        progress: Called with the number of frames done and the total, from the start, because a clip may take minutes.

    Yields:
        The quality of the clip or, if it cannot be read, the reason.

    Raises:
        DataError: if the model's output is not finite.
    """
    training = model.training
    frames = [(clip, _frames(dataset, clip)) for clip in clips]
    done, total = 0, sum(own for _, own in frames)
    known = {} if bicubic is None else bicubic
    model.eval()
    try:
        progress(done, total)
        for clip, own in frames:
            told = partial(_told_within, progress, done, total)
            try:
                source = _Clip(dataset, clip, measuring, shape)
                with at_precision(measuring.precision, device):
                    found = _measured(cast("Restorer", model), source, device, measuring, known, told)
            except VideoError as error:
                yield Replacement(position=-1, video=clip, replacement=-1, path=error.path, cause=error.cause)
            else:
                yield found
            done += own
            if own:
                progress(done, total)
    finally:
        model.train(training)


def quality_of(found: Iterable[Measured | Replacement], measuring: Measuring) -> Quality:
    """Average the quality over clips.

    Raises:
        DataError: if no clip could be read.
    """
    found = list(found)
    measured = [clip for clip in found if isinstance(clip, Measured)]
    if not measured:
        raise DataError(f"none of the {len(found)} clips of the evaluation can be read")
    mean = mean_quality([clip.quality for clip in measured])
    bicubic = [clip.bicubic_psnr for clip in measured if math.isfinite(clip.bicubic_psnr)]
    return Quality(
        psnr=mean.psnr,
        ssim=mean.ssim,
        samples=len(measured),
        frames=mean.frames,
        identical=mean.identical,
        unreadable=len(found) - len(measured),
        protocol=str(measuring),
        bicubic_psnr=math.fsum(bicubic) / len(bicubic) if bicubic else math.inf,
    )


class _Clip:
    """Streams a clip's frames, a few at a time; frames are dropped once taken."""

    def __init__(self, dataset: PairedDataset, item: int, measuring: Measuring, shape: Shape | None) -> None:
        self._dataset = dataset
        self.item = item
        self.name = str(dataset.pairs.high.path(item))
        self.scale = dataset.pairs.degradation.scale
        self.frames = total = dataset.pairs.info(item).frames
        self._size: tuple[int, int] | None = None
        if shape is not None:  # crop to the center; a shorter dimension stays whole
            self.frames = min(total, shape.frames // 2 if measuring.mirrored else shape.frames)
            self._size = (shape.height, shape.width)
        self._first = (total - self.frames) // 2
        self._at_once = self.frames if measuring.chunk is None else _READ
        self._read = 0
        self._waiting: deque[tuple[Tensor, Tensor]] = deque()

    def low(self, frames: range) -> Tensor:
        """Low-resolution frames by number, `(T, 3, H, W)` in 0..1."""
        return video_of(self._part(frames)[0])

    def lows(self) -> Iterator[Tensor]:
        """All low-resolution frames in order, `(3, H, W)` in 0..1; call `take` afterwards."""
        while self._read < self.frames:
            yield from video_of(self._more())

    def take(self) -> tuple[Tensor, Tensor]:
        """The next pair of frames, uint8 `(H, W, 3)` and `(4H, 4W, 3)`."""
        if not self._waiting:
            self._more()
        return self._waiting.popleft()

    def _more(self) -> Tensor:
        """Read the next frames; returns the low-resolution ones."""
        low, high = self._part(range(self._read, min(self.frames, self._read + self._at_once)))
        self._read += len(low)
        self._waiting += zip(low, high, strict=True)
        return low

    def _part(self, frames: range) -> tuple[Tensor, Tensor]:
        frames = range(frames.start + self._first, frames.stop + self._first)
        low, high = answer(self.name, lambda: self._dataset.whole(self.item, frames))
        for axis, wanted in enumerate(self._size or (), start=1):
            size = min(wanted, low.shape[axis])
            start = (low.shape[axis] - size) // 2
            low = low.narrow(axis, start, size)
            high = high.narrow(axis, start * self.scale, size * self.scale)
        return low, high


def _frames(dataset: PairedDataset, clip: int) -> int:
    """Number of frames of a clip; 0 if it cannot be read."""
    try:
        return dataset.pairs.info(clip).frames
    except VideoError:
        return 0


def _told_within(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    """Report progress within a clip; its end is reported after it is measured."""
    if before + done < total:
        progress(before + done, total)


def _measured(
    model: Restorer,
    clip: _Clip,
    device: torch.device,
    measuring: Measuring,
    bicubic: dict[int, float],
    progress: Callable[[int], None],
) -> Measured:
    """Restore a clip, and compare its frames with the ground truth as a stream."""
    counting = measuring.protocol.counting(clip.frames)
    meter, plain = ClipMeter(measuring.protocol), ClipMeter(measuring.protocol, similarity=False)
    restored = _restored(model, clip, device, measuring, progress)
    for first in range(0, clip.frames, FRAMES_AT_ONCE):
        numbers = range(first, min(clip.frames, first + FRAMES_AT_ONCE))
        output = []
        for number, frame in zip(numbers, restored, strict=False):
            check_restored(frame, clip.name, measuring.precision)
            output.append(to_uint8(frame).cpu())
            if measuring.chunk is not None:
                progress(number + 1)
        pairs = [clip.take() for _ in numbers]
        kept = [number - first for number in numbers if number in counting]
        if not kept:
            continue
        truth = torch.stack([pairs[k][1] for k in kept]).movedim(-1, -3)
        meter.add(torch.stack([output[k] for k in kept]), truth)
        if clip.item not in bicubic:
            plain.add(imresize(torch.stack([pairs[k][0] for k in kept]), clip.scale).movedim(-1, -3), truth)
    if clip.item not in bicubic:
        bicubic[clip.item] = plain.psnr
    return Measured(clip.item, meter.quality, bicubic[clip.item])


def _restored(
    model: Restorer, clip: _Clip, device: torch.device, measuring: Measuring, progress: Callable[[int], None]
) -> Iterator[Tensor]:
    """The frames of a clip in order, `(3, 4H, 4W)`, on the device."""
    length, overlap, count = measuring.chunk, measuring.overlap, clip.frames
    if length is not None and measuring.mirrored:
        yield from chunked_mirrored(
            model, lambda frames: clip.low(frames).to(device), count, length=length, overlap=overlap
        )
    elif length is not None:
        yield from chunked(model, (frame.to(device) for frame in clip.lows()), length=length, overlap=overlap)
    else:
        frames = torch.stack(list(clip.lows())).to(device)
        if measuring.mirrored:
            frames = torch.cat([frames, frames.flip(0)])

        def tell(done: int) -> None:
            progress(done * count // len(frames))

        restored = restore(model, frames[None], mirrored=measuring.mirrored, progress=tell)[0]
        if measuring.mirrored:
            restored = (restored[:count] + restored[count:].flip(0)) / 2
        yield from restored
