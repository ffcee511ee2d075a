"""How near restored clips are to the truth: whole clips, each counted once, with the protocol beside the number."""

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
"""dB: less is not seen in two decimals."""
_READ = 16
"""Frames that are read together: a decoder starts at a keyframe each time."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How clips are restored, and what of them counts."""

    protocol: Protocol = Protocol()  # noqa: RUF009 -- frozen
    """What counts."""
    mirrored: bool = False
    """Restore each clip followed by its mirror image, and take the mean of both."""
    chunk: int | None = None
    """Frames restored at a time, which bounds memory; None for all of a clip."""
    overlap: int = 4
    """Frames more on either side of a chunk."""
    precision: str = "fp32"
    """What the network computes in: `fp32`, `bf16` or `fp16`."""

    def __str__(self) -> str:
        how = "whole clips" if self.chunk is None else f"chunks of {self.chunk} + 2 × {self.overlap} frames"
        words = [str(self.protocol), how, *(["mirrored"] if self.mirrored else [])]
        return ", ".join([*words, self.precision] if self.precision != "fp32" else words)


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What an evaluation found, with its protocol."""

    psnr: float
    """Mean over clips of the mean over their frames, in dB."""
    ssim: float
    """The same of SSIM."""
    samples: int
    """Clips counted, each once."""
    frames: int
    """Frames of them that count."""
    identical: int
    """Frames among them that equal the truth, such as black ones, and are not in the mean of PSNR."""
    unreadable: int
    """Clips that could not be read, and do not count."""
    protocol: str
    """What it was measured on."""
    bicubic_psnr: float | None = None
    """PSNR of bicubic interpolation of the low-resolution frames, over the same clips, in dB; None if unknown."""

    @property
    def measure(self) -> str:
        """What the evaluation is about."""
        return "PSNR"

    @property
    def value(self) -> float:
        """The number of that name, in dB."""
        return self.psnr

    @property
    def headline(self) -> str:
        """Both in words, with what bicubic interpolation reaches."""
        beside = "" if self.bicubic_psnr is None else f" (bicubic {self.bicubic_psnr:.2f} dB)"
        return f"PSNR {self.psnr:.2f} dB{beside}"

    @property
    def numbers(self) -> dict[str, float]:
        """All numbers that are worth a curve, by name."""
        return {"psnr": self.psnr, "ssim": self.ssim}

    @property
    def warning(self) -> str | None:
        """What to know of a network that is worse than bicubic interpolation; None if it is not."""
        below = 0.0 if self.bicubic_psnr is None else self.bicubic_psnr - self.psnr
        if not below >= _LEAST:
            return None
        return (
            f"the network is {below:.2f} dB below bicubic interpolation, {self.psnr:.2f} against "
            f"{self.bicubic_psnr:.2f} dB: it has not learned to restore. Train for more steps (for a short training "
            "set training.epsilon=0.03), and check that the low-resolution frames are those of the clips"
        )


class Measured(NamedTuple):
    """A clip that was restored."""

    clip: int
    quality: ClipQuality
    bicubic_psnr: float
    """What bicubic interpolation reaches on it, in dB."""


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
    """Restore whole clips, or the middle of each, one after another, and measure them.

    With `measuring.chunk` memory does not grow with a clip's length, on the device or beside it: frames are read,
    restored and measured as they come.

    Args:
        model: A network, on the device; left in the mode in which it came.
        dataset: The clips.
        clips: Which of them.
        device: Where the model is.
        measuring: How.
        bicubic: The PSNR of bicubic interpolation by clip, where it is known; that of other clips is added.
        shape: What is taken of the middle of each clip, in low-resolution pixels, as training at this shape takes it;
            by default the whole clip.
        progress: Called with how many frames are done, of how many; from the start, as a clip may take minutes.

    Yields:
        How near the clip is to the truth or, where it cannot be read, why.

    Raises:
        DataError: if what the network makes of a clip is not all numbers.
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
    """The mean over clips.

    Raises:
        DataError: if none could be read.
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
    """A clip's frames, read a few at a time; none is kept once it has been taken."""

    def __init__(self, dataset: PairedDataset, item: int, measuring: Measuring, shape: Shape | None) -> None:
        self._dataset = dataset
        self.item = item
        self.name = str(dataset.pairs.high.path(item))
        self.scale = dataset.pairs.degradation.scale
        self.frames = total = dataset.pairs.info(item).frames
        self._size: tuple[int, int] | None = None
        if shape is not None:  # the middle; all of a dimension that is shorter
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
        """All low-resolution frames in order, `(3, H, W)` in 0..1; `take` is to follow."""
        while self._read < self.frames:
            yield from video_of(self._more())

    def take(self) -> tuple[Tensor, Tensor]:
        """The next frame as it is on file, uint8 `(H, W, 3)` and `(4H, 4W, 3)`."""
        if not self._waiting:
            self._more()
        return self._waiting.popleft()

    def _more(self) -> Tensor:
        """Read some more frames: those at low resolution."""
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
    """Frames of a clip; none of one that cannot be read."""
    try:
        return dataset.pairs.info(clip).frames
    except VideoError:
        return 0


def _told_within(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    """Tell how far a clip is; that it is done is told once it is measured, too."""
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
    """Restore a clip, and compare its frames with the truth as they come."""
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
