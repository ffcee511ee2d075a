"""Follows a plan with a stream of full-size batches: any loader that a user has, without a change to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from vcycle.data.grids import Grid, GridSampler
from vcycle.data.info import VideoInfo
from vcycle.data.joining import BatchPart, Joiner, Key, clips_in, clips_of, named
from vcycle.data.rate_watch import RateWatch
from vcycle.data.resampled import Layout, check_layout, layout_meant
from vcycle.data.sampler import check_ranks
from vcycle.data.source import resample
from vcycle.data.views import Views
from vcycle.errors import DataError
from vcycle.plan import Plan, Shape, Step, rank_slice
from vcycle.plan.arguments import check_kind, check_steps
from vcycle.utils.ranks import rank_and_world

__all__ = ["follow"]


def follow(
    stream: Iterable[Any],
    plan: Plan,
    *,
    start: int = 0,
    moved: bool = False,
    rank: int | None = None,
    world: int | None = None,
    key: Key | None = None,
    device: torch.device | str | None = None,
    layout: Layout = "CTHW",
    antialias: bool = True,
) -> Iterator[tuple[Step, Any]]:
    """Train on a plan with your own loader: its batches are joined or cut to each step's, and resized to its shape.

    ``stream`` yields batches of clips at the full shape: a ``DataLoader`` with any sampler (distributed, weighted),
    WebDataset, MosaicML Streaming, DALI. A batch is a tensor, or a tuple, list, mapping, named tuple or dataclass of
    them, nested in any way. Everything with one entry per clip is joined and cut with the clips: tensors, NumPy
    arrays, lists (of ids, texts, dictionaries). Anything else (a number, a flag) must be the same in all batches.
    Clips that a step does not need wait for the next one. Only the clips under ``key`` are resized.

    A step's clip shows the whole full-size clip: its frame ``i`` of ``t`` is the one on display in the middle of the
    ``i``-th of ``t`` equal parts, and the picture is resized, bilinear, to cover the step's size, of which it is the
    center (all of it, if both are square). ``vcycle.loader`` gives the same with ``GridSampler(frames=T, size=S,
    span=(1, 1), field=(1, 1))``; by default it gives a random part of the clip at coarse shapes. Clips of the step's
    shape are passed on as they are.

    When the stream ends, its next epoch starts. Samplers that have to be told are told: ``set_epoch`` of the stream,
    its ``sampler``, ``batch_sampler`` and ``dataset``, if there is one, is called with one more than their ``epoch``
    (for objects without one, the number of epochs so far). It is not called before the first epoch, whose order is
    yours. Each rank follows its own stream, as with a ``DistributedSampler``, and takes its share of a step's clips.

    What it cannot do:

    - save decoding: the stream makes each clip at full size. The plan saves the network's work only;
    - resume without decoding: with ``start=k`` the clips of the steps before are drawn again and discarded, pass by
      pass. A stream whose order depends on the epoch alone then resumes exactly. To save the time,
      move the stream there yourself (its ``state_dict``, ``sampler.set_epoch``), and say ``moved=True``;
      ``plan[k].first_sample`` is the number of clips that all ranks have used before;
    - order, replace or augment samples: that is the stream's.

    Example:
        ``for step, (clips, labels) in vcycle.follow(my_loader, plan, device="cuda"): ...``

    Args:
        stream: The batches of this rank, of any length. To train longer than one pass, it must give a new iterator
            each time.
        plan: The plan: shapes and batch sizes.
        start: First step.
        moved: Whether the stream begins at the clips of that step, and not at those of the first one.
        rank: This rank, found by default, as ``loader`` does.
        world: Number of ranks, found by default.
        key: Where the clips are in a batch: a name in a mapping, dataclass or named tuple (``"pixel_values"``), or a
            position in a tuple. By default they are the batch itself, its first element, or its only
            five-dimensional tensor.
        device: Where to resize, and where tensors go; by default they stay where they are.
        layout: Dimension order of a clip, kept in the result; the batch comes first.
        antialias: Whether to average over the pixels between samples. Pictures are resized in their own type where
            PyTorch can, else in float32 and rounded: uint8 clips may differ by 1 between a CPU and a GPU.

    Returns:
        An iterator of steps, each with this rank's batch, which has the structure of the stream's and clips of the
        shape ``step.shape``.

    Raises:
        PlanError: If ``start`` is not in the plan, or a batch is smaller than the number of ranks.
        DataError: If ``layout`` is unknown. During iteration: if the stream ends before the plan and cannot start
            again, its clips are smaller than a step's shape or not five-dimensional, or its batches cannot be joined:
            they differ in structure or type.

    Warns:
        UserWarning: Once, in a loop that never sets an LR, as ``steps`` does.
    """
    check_kind("plan", plan, Plan, "vcycle.follow(stream, plan)")
    check_steps(plan, start, len(plan))
    fitted = _Fitted(layout, antialias=antialias, device=None if device is None else torch.device(device))
    shares = _shares(plan, start if moved else 0, *rank_and_world(rank, world))
    return _steps(_Supply(stream, plan, key), fitted, shares, start)


def _shares(plan: Plan, first: int, rank: int, world: int) -> Iterator[tuple[Step, int]]:
    """Return each step and this rank's number of clips."""
    check_ranks(plan, rank, world)
    return ((step, len(rank_slice(step.batch, step.bn_batch, rank, world))) for step in plan.iterate(first))


def _steps(
    supply: _Supply, fitted: _Fitted, shares: Iterator[tuple[Step, int]], start: int
) -> Iterator[tuple[Step, Any]]:
    joined = Joiner(fitted.device)
    watch = RateWatch()
    for step, share in shares:
        drawn = supply.take(share, step)
        if step.index < start:
            deque(drawn, maxlen=0)  # discarded, a batch at a time
            continue
        parts = list(drawn)
        watch.see(step)
        # Resized before they are joined: the coarse clips of a large batch take far less memory.
        yield step, joined(parts, supply.clips_at, [fitted(clips_in(part, supply.clips_at), step) for part in parts])


class _Supply:
    """Takes clips from a stream, a given number at a time."""

    def __init__(self, stream: Iterable[Any], plan: Plan, key: Key | None) -> None:
        self._clips_at: tuple[Key, ...] | None = None
        self._stream = stream
        self._plan = plan
        self._key = key
        self._batches: Iterator[Any] | None = None  # started at the first step: that may start worker processes
        self._once = False
        self._rest: BatchPart | None = None
        self._epoch = 0
        self._fresh = True
        """Whether nothing of this epoch has come yet."""
        self._used = 0

    @property
    def clips_at(self) -> tuple[Key, ...]:
        """The place of the clips in every batch."""
        return self._clips_at or ()

    def take(self, clips: int, step: Step) -> Iterator[BatchPart]:
        """Yield the next clips, in parts of batches."""
        while clips:
            part = self._rest or self._next(step)
            stop = min(part.stop, part.start + clips)
            clips -= stop - part.start
            self._used += stop - part.start
            self._rest = part._replace(start=stop) if stop < part.stop else None
            yield part._replace(stop=stop)

    def _next(self, step: Step) -> BatchPart:
        """Return the next batch that has clips, of this epoch or the next."""
        if self._batches is None:
            self._batches = iter(self._stream)
            self._once = self._batches is self._stream
        while True:
            for batch in self._batches:
                clips_at, clips = clips_of(batch, self._key)
                if self._clips_at is None:
                    self._clips_at = clips_at
                elif clips_at != self._clips_at:
                    raise DataError(
                        f"batches of the stream differ: clips are in {named(self._clips_at)} and in {named(clips_at)}"
                    )
                if count := len(clips) if clips.ndim else 0:
                    self._fresh = False
                    return BatchPart(batch, 0, count, count)
            self._restart(step)

    def _restart(self, step: Step) -> None:
        where = f"the stream ended at step {step.index} of {len(self._plan)}, after {self._used:,} clips"
        if self._fresh:
            raise DataError(
                f"{where}: its epoch {self._epoch} has no clips: it must give a new iterator, with clips, for each pass"
            )
        if self._once:
            raise DataError(
                f"{where}: a {type(self._stream).__name__} can be iterated once; give what can be iterated again, such "
                "as the DataLoader, or an endless stream"
            )
        self._epoch, self._fresh = self._epoch + 1, True
        _set_epoch(self._stream, self._epoch)
        self._batches = iter(self._stream)


def _set_epoch(stream: Any, passes: int) -> None:
    """Tell a stream, its samplers and its dataset that the next epoch starts."""
    batch_sampler = getattr(stream, "batch_sampler", None)
    places = [
        stream,
        getattr(stream, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
        getattr(stream, "dataset", None),
    ]
    found = {id(place): place for place in places if callable(getattr(place, "set_epoch", None))}
    # One may tell another: all epochs are read before any is set.
    epochs = [(place, getattr(place, "epoch", None)) for place in found.values()]
    for place, epoch in epochs:
        place.set_epoch(epoch + 1 if isinstance(epoch, int) else passes)


class _Fitted:
    """Resizes clips to a step's shape."""

    def __init__(self, layout: Layout, *, antialias: bool, device: torch.device | None) -> None:
        check_layout(layout)
        self.device = device
        self._layout = layout
        self._antialias = antialias
        self._to_thwc = (0, *(1 + layout.index(axis) for axis in "THWC"))
        self._back = (0, *(1 + "THWC".index(axis) for axis in layout))

    def __call__(self, clips: Tensor, step: Step) -> Tensor:
        """Return a batch of clips at the shape of a step.

        Raises:
            DataError: If they are not five-dimensional, of another layout, or too small.
        """
        shape = step.shape
        if clips.ndim != 5:
            single = ": give batches, such as those of a DataLoader" if clips.ndim == 4 else ""
            raise DataError(f"a batch of clips of shape {tuple(clips.shape)} is not B{self._layout}{single}")
        if (meant := layout_meant(tuple(clips.shape[1:]), self._layout)) is not None:
            raise DataError(
                f"a batch of clips of shape {tuple(clips.shape)} would have {clips.shape[1 + self._layout.index('C')]} "
                f"channels as B{self._layout}: give layout={meant!r}"
            )
        if self.device is not None:
            clips = clips.to(self.device, non_blocking=True)
        pixels = clips.permute(self._to_thwc)
        count, frames, height, width, channels = pixels.shape
        if frames < shape.frames or height < shape.height or width < shape.width:
            raise DataError(
                f"the stream's clips have {Shape(frames, height, width)} as B{self._layout}, too small for {shape} of "
                f"step {step.index}: a stream gives clips at the full shape"
            )
        if (frames, height, width) == shape:
            return clips
        info = VideoInfo.uniform(frames, height, width)
        grid = _whole(shape, info)
        chosen = info.frame_at(grid.times)
        if shape.frames < frames:
            pixels = pixels[:, torch.from_numpy(chosen).to(pixels.device)]
        flat = pixels.reshape(count * shape.frames, height, width, channels)
        small = resample(flat, grid.resized, grid.crop, antialias=self._antialias)
        return small.reshape(count, *shape, channels).permute(self._back).contiguous()


def _whole(shape: Shape, info: VideoInfo) -> Grid:
    """Return the grid that shows all of a clip: all of its time, and the largest centered part of its picture."""
    grids = GridSampler(frames=shape.frames, size=shape.size, span=(1.0, 1.0), field=(1.0, 1.0))
    return grids.view(Views(shape=shape), 0, info)
