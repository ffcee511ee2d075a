"""Adapter that resamples any map-style dataset of whole clips to the requested shapes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sized
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vcycle.data.dataset import refuse_number
from vcycle.data.generators import KeyedDraws
from vcycle.data.grids import GridSampler
from vcycle.data.info import VideoInfo
from vcycle.data.request import SampleRequest, answer
from vcycle.data.source import resample
from vcycle.errors import DataError, shown
from vcycle.plan import Shape

__all__ = ["Layout", "ResampledDataset", "check_layout", "layout_meant"]

Layout = Literal["CTHW", "TCHW", "THWC"]

_LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_COLORS = 3
_MOST_CHANNELS = 4  # color channels, and perhaps alpha


class _Items(Sized, Protocol):
    def __getitem__(self, item: int, /) -> Any: ...


class ResampledDataset(Dataset[Any]):
    """Resamples the clips of any map-style dataset to the requested shapes; the dataset itself is not changed.

    An item is a clip (tensor or array), a tuple or list that starts with one, or a mapping that has one under ``key``;
    the other elements pass through.
    Random draws of the dataset from the global generators of Python, NumPy and torch, or from generators that it or its
    transforms hold, are keyed too, so they do not depend on workers or on resuming.
    """

    samples_grids = True
    """Takes requests, and resamples each clip to the requested shape."""

    def __init__(self, dataset: _Items, grids: GridSampler, *, layout: Layout = "CTHW", key: str | None = None) -> None:
        """Wrap a dataset.

        Args:
            dataset: Any object with ``len`` and ``dataset[i]``.
            grids: Sampling grids; a stride is in frames of the dataset's clips.
            layout: Dimension order of the clip (frames T, height H, width W, channels C), kept in the result.
            key: Key of the clip, if items are mappings; they become dicts.
        """
        check_layout(layout)
        self.dataset = dataset
        self.grids = grids
        self.layout = layout
        self.key = key
        self._to_thwc = tuple(layout.index(axis) for axis in "THWC")
        self._back = tuple("THWC".index(axis) for axis in layout)
        self._draws = KeyedDraws()
        self._warned = False

    def __len__(self) -> int:
        """Return the length of the wrapped dataset."""
        return len(self.dataset)

    def name(self, item: int) -> str:
        """Return an item's number, for messages."""
        return f"item {item}"

    def __getitem__(self, request: SampleRequest) -> Any:
        """Return the item of a request, with its clip resampled.

        Raises:
            DataError: If the item has no four-dimensional clip, or an index is given in place of a request.
        """
        refuse_number(self, request)
        item = self._draws.make(
            request, self.dataset, lambda: answer(self.name(request.index), lambda: self.dataset[request.index])
        )
        if self.key is not None or isinstance(item, Mapping):
            key = self._key_of(item, request)
            return {**item, key: self._resample(_as_tensor(item[key], request), request)}
        if isinstance(item, Tensor | np.ndarray):
            return self._resample(_as_tensor(item, request), request)
        if isinstance(item, tuple | list) and item and isinstance(item[0], Tensor | np.ndarray):
            rest = [self._resample(_as_tensor(item[0], request), request), *item[1:]]
            return type(item)(*rest) if hasattr(item, "_fields") else type(item)(rest)
        first = f" that starts with {type(item[0]).__name__}" if isinstance(item, tuple | list) and item else ""
        raise DataError(
            f"item {request.index} is {type(item).__name__}{first}: must be a clip (tensor or array), or a tuple that "
            "starts with one"
        )

    def _key_of(self, item: Any, request: SampleRequest) -> str:
        """Return the key of the clip in a mapping.

        Raises:
            DataError: If the key is not given, or the item is not a mapping that has a clip under it.
        """
        if not isinstance(item, Mapping):
            raise DataError(
                f"item {request.index} is {type(item).__name__}: with key={shown(self.key)}, it must be a dict"
            )
        keys = ", ".join(map(repr, item)) or "nothing"
        clips = [key for key, value in item.items() if isinstance(value, Tensor | np.ndarray) and value.ndim == 4]
        if self.key is None:
            raise DataError(
                f"item {request.index} is {type(item).__name__} with {keys}: give the key of its clip, "
                f"such as key={next(iter(clips), 'pixel_values')!r}"
            )
        if self.key not in item:
            raise DataError(f"item {request.index} has no {shown(self.key)}: it has {keys}")
        if not isinstance(item[self.key], Tensor | np.ndarray):
            raise DataError(
                f"item {request.index}: {self.key!r} is {type(item[self.key]).__name__}: must be a clip (tensor or "
                "array)"
            )
        return self.key

    def _resample(self, clip: Tensor, request: SampleRequest) -> Tensor:
        if clip.ndim != 4:
            raise DataError(f"item {request.index}: a clip of shape {tuple(clip.shape)} is not {self.layout}")
        if clip.numel() == 0:
            raise DataError(f"item {request.index}: a clip of shape {tuple(clip.shape)} has no pixels")
        if (meant := layout_meant(tuple(clip.shape), self.layout)) is not None:
            raise DataError(
                f"item {request.index}: a clip of shape {tuple(clip.shape)} would have "
                f"{clip.shape[self.layout.index('C')]} channels as {self.layout}: give layout={meant!r}"
            )
        clip = clip.permute(self._to_thwc)
        self._warn_if_enlarged(Shape(*clip.shape[:3]), request)
        info = VideoInfo.uniform(*clip.shape[:3])
        grid = self.grids.train(request, info)
        frames = torch.from_numpy(info.frame_at(grid.times))
        clip = resample(clip.index_select(0, frames), grid.resized, grid.crop, antialias=self.grids.antialias)
        return (clip.flip(2) if grid.flip else clip).permute(self._back).contiguous()

    def _warn_if_enlarged(self, own: Shape, request: SampleRequest) -> None:
        """Warn, once in each process, that a clip is too small for a shape: its plan is made for larger ones."""
        shape = request.shape
        if self._warned or (
            own.frames >= shape.frames and min(own.height, own.width) >= min(shape.height, shape.width)
        ):
            return
        self._warned = True
        warnings.warn(
            f"item {request.index} is a clip of {own} (T×H×W), smaller than {shape} of a step: frames are repeated and "
            "pictures enlarged, here and in every such item. The plan's frames and size should be those of your clips",
            stacklevel=2,
        )


def _as_tensor(clip: Tensor | NDArray[Any], request: SampleRequest) -> Tensor:
    if isinstance(clip, Tensor):
        return clip
    if not clip.flags.writeable or min(clip.strides, default=0) < 0:
        clip = clip.copy()  # torch supports no negative strides, and warns about read-only arrays
    try:
        return torch.as_tensor(clip)
    except TypeError as error:
        raise DataError(f"item {request.index}: a clip must be numeric, not {clip.dtype}") from error


def check_layout(layout: str) -> None:
    """Refuse an unknown order of dimensions.

    Raises:
        DataError: says which are known.
    """
    if layout not in _LAYOUTS:
        raise DataError(f"layout={shown(layout)}: must be CTHW, TCHW or THWC")


def layout_meant(shape: tuple[int, ...], layout: Layout) -> Layout | None:
    """Return the layout in which a clip has three channels, if it has too many in the given one."""
    if shape[layout.index("C")] <= _MOST_CHANNELS:
        return None
    return next((other for other in _LAYOUTS if shape[other.index("C")] == _COLORS), None)
