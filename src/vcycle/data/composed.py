"""PyTorch's ``Subset`` and ``ConcatDataset`` over datasets that sample grids, looked through."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from vcycle.data.dataset import Sample, unreplaced
from vcycle.data.request import SampleRequest
from vcycle.data.views import Views
from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = ["ComposedDataset", "looked_through", "name_of", "sample_bytes_of"]

_SAMPLE_BYTES = 12
"""Shared memory per voxel for a dataset that does not say what it needs: three colours as float32. What is not written
to is not used up, and larger samples go another, slower way."""

_KINDS: tuple[type[Any], ...] = (Subset, ConcatDataset)


def looked_through(dataset: Any) -> Any:
    """A dataset that takes requests, where a composed one is of such; any other as it is.

    Raises:
        DataError: If some of its parts sample grids and others do not.
    """
    if not _is_composed(dataset):
        return dataset
    parts = list(_parts(dataset))
    sampling = [part for part in parts if getattr(part, "samples_grids", False)]
    if sampling and len(sampling) < len(parts):
        other = next(part for part in parts if not getattr(part, "samples_grids", False))
        raise DataError(
            f"a {type(dataset).__name__} of {type(sampling[0]).__name__}, which samples grids, and of "
            f"{type(other).__name__}, which does not: parts of one sort are accepted"
        )
    return ComposedDataset(dataset) if sampling else dataset


class ComposedDataset(Dataset[Any]):
    """Answers requests for a ``Subset`` or ``ConcatDataset``, nested in any way, of datasets that sample grids.

    Items are numbered as in the outer dataset, also in what samples say of themselves. A bad item is a ``VideoError``
    and is not replaced here: a replacement has to be of the outer dataset too.
    """

    samples_grids = True
    """Takes requests, and hands them on."""

    def __init__(self, dataset: Subset[Any] | ConcatDataset[Any]) -> None:
        """Look through a dataset."""
        self.dataset = dataset

    def __len__(self) -> int:
        """Length of the outer dataset."""
        return len(self.dataset)

    def __getitem__(self, request: SampleRequest) -> Any:
        """What the part that has the item gives for the request.

        Raises:
            VideoError: If the item cannot be read.
        """
        return self._sample(request, None)

    def load_into(self, request: SampleRequest, memory: Tensor) -> Any:
        """The same, and where the part can do so, at the beginning of ``memory``.

        Raises:
            VideoError: If the item cannot be read.
        """
        return self._sample(request, memory)

    def view(self, item: int, views: Views, clip: int, memory: Tensor | None = None) -> Sample:
        """A clip for evaluation; see ``VideoDataset.view``.

        Raises:
            VideoError: If the video cannot be read.
        """
        part, inner = _find(self.dataset, item)
        sample: Sample = part.view(inner, views, clip, memory)
        return replace(sample, index=item)

    def name(self, item: int) -> str:
        """An item's name in its part, for messages."""
        part, inner = _find(self.dataset, item)
        return name_of(part, inner)

    def sample_bytes(self, shape: Shape) -> int:
        """Shared memory that a sample of any part takes."""
        return max(sample_bytes_of(part, shape) for part in _parts(self.dataset))

    def _sample(self, request: SampleRequest, memory: Tensor | None) -> Any:
        part, inner = _find(self.dataset, request.index)
        found = (_find(self.dataset, item) for item in request.avoid)
        asked = replace(request, index=inner, avoid=tuple(item for other, item in found if other is part))
        into = None if memory is None else getattr(part, "load_into", None)
        with unreplaced():
            sample = part[asked] if into is None else into(asked, memory)
        return replace(sample, index=request.index) if isinstance(sample, Sample) else sample


def name_of(dataset: Any, item: int) -> str:
    """What a dataset calls an item, for messages; its number where it has no names."""
    own = getattr(dataset, "name", None)
    return str(own(item)) if callable(own) else f"item {item}"


def sample_bytes_of(dataset: Any, shape: Shape) -> int:
    """Shared memory that a sample of a dataset takes, by its own word where it has one."""
    own = getattr(dataset, "sample_bytes", None)
    return int(own(shape)) if own is not None else _SAMPLE_BYTES * shape.voxels


def _is_composed(dataset: Any) -> bool:
    """Whether a dataset is one of PyTorch's two; not one derived from them that changes the items."""
    return any(isinstance(dataset, kind) and type(dataset).__getitem__ is kind.__getitem__ for kind in _KINDS)


def _parts(dataset: Any) -> Iterator[Any]:
    """The datasets that items come from."""
    if not _is_composed(dataset):
        yield dataset
    else:
        for inner in [dataset.dataset] if isinstance(dataset, Subset) else dataset.datasets:
            yield from _parts(inner)


def _find(dataset: Any, item: int) -> tuple[Any, int]:
    """The part that has an item, and its number there."""
    while _is_composed(dataset):
        if isinstance(dataset, Subset):
            item, dataset = int(dataset.indices[item]), dataset.dataset
        else:
            ends = dataset.cumulative_sizes
            number = bisect_right(ends, item)
            item, dataset = item - (ends[number - 1] if number else 0), dataset.datasets[number]
        if item < 0:
            item += len(dataset)
    return dataset, item
