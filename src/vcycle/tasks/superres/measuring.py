"""How near restored clips are to the truth: whole clips, each counted once, with the protocol beside the number."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from vcycle.data import Replacement, VideoError
from vcycle.errors import DataError
from vcycle.nn.precision import at_precision
from vcycle.plan import Shape
from vcycle.tasks.superres.metrics import (
    ClipQuality,
    Protocol,
    check_restored,
    clip_quality,
    mean_quality,
    to_uint8,
)
from vcycle.tasks.superres.models.clips import Restorer, chunked, restore
from vcycle.tasks.superres.objective import video_of
from vcycle.tasks.superres.pairs.dataset import PairedDataset, PairedSample

__all__ = ["Measured", "Measuring", "Quality", "quality_of", "restore_each"]


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How clips are restored, and what of them counts."""

    protocol: Protocol = Protocol()  # noqa: RUF009 -- frozen
    """What counts."""
    mirrored: bool = False
    """Restore each clip followed by its mirror image, and take the mean of both."""
    chunk: int | None = None
    """Frames restored at a time; None for all."""
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
        """Both in words."""
        return f"PSNR {self.psnr:.2f} dB"

    @property
    def numbers(self) -> dict[str, float]:
        """All numbers that are worth a curve, by name."""
        return {"psnr": self.psnr, "ssim": self.ssim}


class Measured(NamedTuple):
    """A clip that was restored."""

    clip: int
    quality: ClipQuality


@torch.no_grad()
def restore_each(
    model: nn.Module,
    dataset: PairedDataset,
    clips: Iterable[int],
    *,
    device: torch.device,
    measuring: Measuring,
    shape: Shape | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Iterator[Measured | Replacement]:
    """Restore whole clips, or the middle of each, one after another, and measure them.

    Args:
        model: A network, on the device; left in the mode in which it came.
        dataset: The clips.
        clips: Which of them.
        device: Where the model is.
        measuring: How.
        shape: What is taken of the middle of each clip, in low-resolution pixels, as training at this shape takes it;
            by default the whole clip.
        progress: Told how many frames are done, of how many; from the beginning on, as a clip may take minutes.

    Yields:
        How near the clip is to the truth or, where it cannot be read, why.

    Raises:
        DataError: if what the network makes of a clip is not all numbers.
    """
    training = model.training
    frames = [(clip, _frames(dataset, clip)) for clip in clips]
    done, total = 0, sum(own for _, own in frames)
    model.eval()
    try:
        progress(done, total)
        for clip, own in frames:
            try:
                pair = dataset.whole(clip) if shape is None else _middle(dataset.whole(clip), shape, measuring.mirrored)
            except VideoError as error:
                yield Replacement(position=-1, video=clip, replacement=-1, path=error.path, cause=error.cause)
            else:
                told, path = partial(_told_within, progress, done, total), str(dataset.pairs.high.path(clip))
                with at_precision(measuring.precision, device):
                    restored = _restored(cast("Restorer", model), video_of(pair.lr), path, device, measuring, told)
                yield Measured(clip, clip_quality(restored, pair.hr.movedim(-1, -3), measuring.protocol))
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
    measured = [clip.quality for clip in found if isinstance(clip, Measured)]
    if not measured:
        raise DataError(f"none of the {len(found)} clips of the evaluation can be read")
    mean = mean_quality(measured)
    return Quality(
        psnr=mean.psnr,
        ssim=mean.ssim,
        samples=len(measured),
        frames=mean.frames,
        identical=mean.identical,
        unreadable=len(found) - len(measured),
        protocol=str(measuring),
    )


def _frames(dataset: PairedDataset, clip: int) -> int:
    """Frames of a clip; none of one that cannot be read."""
    try:
        return dataset.pairs.info(clip).frames
    except VideoError:
        return 0


def _middle(pair: PairedSample, shape: Shape, mirrored: bool) -> PairedSample:
    """The middle of a clip, in time and in space; all of a dimension that is shorter than the shape."""
    lr, hr = pair.lr, pair.hr
    scale = hr.shape[2] // lr.shape[2]
    sizes = (shape.frames // 2 if mirrored else shape.frames, shape.height, shape.width)
    for axis, (wanted, factor) in enumerate(zip(sizes, (1, scale, scale), strict=True)):
        size = min(wanted, lr.shape[axis])
        start = (lr.shape[axis] - size) // 2
        lr, hr = lr.narrow(axis, start, size), hr.narrow(axis, start * factor, size * factor)
    return pair._replace(lr=lr, hr=hr)


def _told_within(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    """Tell how far a clip is; that it is done is told once it is measured, too."""
    if before + done < total:
        progress(before + done, total)


def _restored(
    model: Restorer,
    frames: Tensor,
    clip: str,
    device: torch.device,
    measuring: Measuring,
    progress: Callable[[int], None],
) -> Tensor:
    """All frames of a clip, uint8 `(T, 3, 4H, 4W)`, on the CPU."""
    count = len(frames)
    if measuring.mirrored:
        frames = torch.cat([frames, frames.flip(0)])

    def tell(done: int) -> None:
        progress(done * count // len(frames))

    if measuring.chunk is None:
        restored = restore(model, frames[None].to(device), mirrored=measuring.mirrored, progress=tell)[0]
    else:
        pieces = (frame.to(device) for frame in frames)
        kept = []
        for frame in chunked(model, pieces, length=measuring.chunk, overlap=measuring.overlap):
            kept.append(frame)
            tell(len(kept))
        restored = torch.stack(kept)
    if measuring.mirrored:
        restored = (restored[:count] + restored[count:].flip(0)) / 2
    check_restored(restored, clip, measuring.precision)
    return to_uint8(restored).cpu()
