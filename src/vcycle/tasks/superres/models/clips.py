"""Whole clips through a network: every frame restored, in a piece or in chunks of flat memory."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from vcycle.errors import PlanError
from vcycle.train.calling import calling

__all__ = ["Restorer", "chunked", "chunked_mirrored", "restore", "window_frames"]


class Restorer(Protocol):
    """What the networks of this package have in common."""

    @property
    def window(self) -> int | None:
        """Frames that it takes: None for any number, of which it gives each; otherwise it gives the center one."""
        ...

    def outputs(self, frames: int) -> range:
        """Return which frames of a clip the call gives."""
        ...

    def __call__(self, video: Tensor, *, mirrored: bool = False) -> Tensor:
        """Return ``(B, len(outputs(T)), 3, 4H, 4W)`` from ``(B, T, 3, H, W)``."""
        ...


def window_frames(index: int, frames: int, window: int) -> list[int]:
    """Return the frames of the window around one: what a clip lacks at its ends is taken from the window's other side.

    Every frame is a neighbour once ("reflection_circle" of the reference implementations). A clip shorter than the
    window repeats its last frame.

    Example:
        >>> window_frames(0, 100, 5), window_frames(98, 100, 5)
        ([4, 3, 0, 1, 2], [96, 97, 98, 99, 95])
    """
    reach = window // 2
    places = []
    for place in range(index - reach, index + reach + 1):
        if place < 0:
            place = index + reach - place
        elif place >= frames:
            place = index - reach - (place - frames + 1)
        places.append(min(max(place, 0), frames - 1))
    return places


@torch.no_grad()
def restore(
    model: Restorer,
    video: Tensor,
    *,
    mirrored: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Return every frame of whole clips, four times as large: ``(B, T, 3, 4H, 4W)`` fp32, without gradients.

    Args:
        model: A network, in evaluation mode.
        video: ``(B, T, 3, H, W)`` in 0..1, RGB, of any length.
        mirrored: The second half of each clip is its first half in reverse.
        progress: Told how many frames are restored, where the network takes windows and gives one after another.
    """
    frames, height, width = video.shape[1], *video.shape[-2:]
    with calling(model, f"in evaluation, on {len(video)}×{frames}×{height}×{width}"):
        if model.window is None:
            return model(video, mirrored=mirrored)
        restored = []
        for index in range(frames):
            restored.append(model(video[:, window_frames(index, frames, model.window)]))
            progress(index + 1)
        return torch.cat(restored, dim=1)


def chunked(model: Restorer, frames: Iterable[Tensor], *, length: int, overlap: int) -> Iterator[Tensor]:
    """Restore a clip of any length, chunk by chunk: memory does not grow with it.

    Each chunk of ``length`` frames is restored among ``overlap`` frames on either side (more on one at the
    clip's ends), which are then dropped. The result is that of the whole clip where the overlap covers what the network
    sees: half of EDVR's window. BasicVSR sees the whole clip; what comes from further away than the overlap is lost.

    Args:
        model: A network, in evaluation mode.
        frames: ``(3, H, W)`` each, in 0..1, RGB, read as they are needed and at most ``length + 2 · overlap`` kept.
        length: Frames of a chunk that are kept.
        overlap: Frames on either side that are dropped.

    Yields:
        Frames ``(3, 4H, 4W)`` in fp32, in order, as many as came.

    Raises:
        PlanError: the length is below 1, the overlap below 0, or a frame is of another size than those before it.
    """
    if length < 1 or overlap < 0:
        raise PlanError(f"chunks of {length} frames with {overlap} beside them; accepted: at least 1, and at least 0")
    return _chunks(model, iter(frames), length, overlap)


def _chunks(model: Restorer, source: Iterator[Tensor], length: int, overlap: int) -> Iterator[Tensor]:
    kept: list[Tensor] = []
    first = done = 0  # the clip's number of the first frame that is kept, of the first that is not restored
    while True:
        # Up to this frame, for this chunk. At the clip's ends more is kept on one side, as there is less on the other.
        wanted = max(done, overlap) + length + overlap
        new = list(islice(source, wanted - first - len(kept)))
        kept += new
        _check(kept)
        ended = first + len(kept) < wanted
        surplus = max(0, len(kept) - length - 2 * overlap)
        kept, first = kept[surplus:], first + surplus
        stop = first + len(kept) if ended else done + length
        if stop <= done:
            return
        restored = restore(model, torch.stack(kept)[None])[0]
        yield from restored[done - first : stop - first].unbind()
        done = stop


def chunked_mirrored(
    model: Restorer, low: Callable[[range], Tensor], frames: int, *, length: int, overlap: int
) -> Iterator[Tensor]:
    """The mean over both restorations of a clip that is followed by its mirror image, chunk by chunk.

    As ``chunked`` restores the clip and its mirror image. It goes through both at once, from the two ends of the whole
    to its middle, so that no more than two chunks are kept.

    Args:
        model: A network, in evaluation mode.
        low: Gives frames by number, ``(T, 3, H, W)`` in 0..1, RGB; asked for at most ``length + 2 · overlap``.
        frames: Frames of the clip.
        length: Frames of a chunk that are kept.
        overlap: Frames on either side that are dropped.

    Yields:
        Frames ``(3, 4H, 4W)`` in fp32, in order.
    """

    def restored(window: range, kept: range) -> Tensor:
        numbers = [min(number, 2 * frames - 1 - number) for number in window]
        first = min(numbers)
        read = low(range(first, max(numbers) + 1))
        video = read[[number - first for number in numbers]]
        return restore(model, video[None])[0][kept.start - window.start : kept.stop - window.start]

    chunks = _windows(2 * frames, length, overlap)
    there = (frame for chunk in chunks for frame in restored(*chunk).unbind())
    back = (frame for chunk in reversed(chunks) for frame in reversed(restored(*chunk).unbind()))
    for _, one, other in zip(range(frames), there, back, strict=False):
        yield (one + other) / 2


def _windows(frames: int, length: int, overlap: int) -> list[tuple[range, range]]:
    """The chunks of a clip as ``chunked`` cuts them: frames that the network is given, and those that are kept."""
    found, done = [], 0
    while done < frames:
        wanted = max(done, overlap) + length + overlap
        end = min(frames, wanted)
        stop = frames if frames < wanted else done + length
        found.append((range(max(0, end - length - 2 * overlap), end), range(done, stop)))
        done = stop
    return found


def _check(frames: list[Tensor]) -> None:
    sizes = {tuple(frame.shape) for frame in frames}
    if len(sizes) > 1:
        raise PlanError(f"frames of one clip are of shapes {sorted(sizes)}; accepted: one (3, H, W) for all")
