"""Support for PyTorch's ``Subset`` and ``ConcatDataset`` over datasets that sample grids."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from vcycle.data.dataset import Sample, unreplaced
from vcycle.data.request import SampleRequest, answer
from vcycle.data.views import Views
from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = ["ComposedDataset", "looked_through", "name_of", "sample_bytes_of"]

_SAMPLE_BYTES = 12
"""Shared memory per voxel for a dataset that does not report its size: three float32 channels. Memory that is not
written to is not used; larger samples are sent another, slower way."""

_KINDS: tuple[type[Any], ...] = (Subset, ConcatDataset)


def looked_through(dataset: Any) -> Any:
    """Wrap a composed dataset whose parts take requests; return any other dataset unchanged.

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
            f"a {type(dataset).__name__} mixes {type(sampling[0]).__name__}, which samples grids, and "
            f"{type(other).__name__}, which does not: all parts must be of the same kind"
        )
    return ComposedDataset(dataset) if sampling else dataset


class ComposedDataset(Dataset[Any]):
    """Answers requests for a ``Subset`` or ``ConcatDataset``, at any nesting, of datasets that sample grids.

    Items and samples use the outer dataset's numbers. A bad item raises ``VideoError`` and is not replaced here: the
    replacement must come from the outer dataset.
    """

    samples_grids = True
    """Takes requests and forwards them."""

    def __init__(self, dataset: Subset[Any] | ConcatDataset[Any]) -> None:
        """Wrap a dataset."""
        self.dataset = dataset

    def __len__(self) -> int:
        """Length of the outer dataset."""
        return len(self.dataset)

    def __getitem__(self, request: SampleRequest) -> Any:
        """Return the sample of the part that has the item.

        Raises:
            VideoError: If the item cannot be read.
        """
        return self._sample(request, None)

    def load_into(self, request: SampleRequest, memory: Tensor) -> Any:
        """Return the same sample, at the beginning of ``memory`` if the part supports it.

        Raises:
            VideoError: If the item cannot be read.
        """
        return self._sample(request, memory)

    def view(self, item: int, views: Views, clip: int, memory: Tensor | None = None) -> Sample:
        """Return a clip for evaluation; see ``VideoDataset.view``.

        Raises:
            VideoError: If the video cannot be read.
        """
        part, inner = _find(self.dataset, item)
        sample: Sample = part.view(inner, views, clip, memory)
        return replace(sample, index=item)

    def name(self, item: int) -> str:
        """Return an item's name in its part, for messages."""
        part, inner = _find(self.dataset, item)
        return name_of(part, inner)

    def sample_bytes(self, shape: Shape) -> int:
        """Return the shared memory that a sample of any part needs, in bytes."""
        return max(sample_bytes_of(part, shape) for part in _parts(self.dataset))

    def _sample(self, request: SampleRequest, memory: Tensor | None) -> Any:
        part, inner = _find(self.dataset, request.index)
        found = (_find(self.dataset, item) for item in request.avoid)
        asked = replace(request, index=inner, avoid=tuple(item for other, item in found if other is part))
        into = None if memory is None else getattr(part, "load_into", None)
        with unreplaced():
            sample = answer(name_of(part, inner), lambda: part[asked] if into is None else into(asked, memory))
        return replace(sample, index=request.index) if isinstance(sample, Sample) else sample


def name_of(dataset: Any, item: int) -> str:
    """Return a dataset's name for an item, for messages; its number if it has no names."""
    own = getattr(dataset, "name", None)
    return str(own(item)) if callable(own) else f"item {item}"


def sample_bytes_of(dataset: Any, shape: Shape) -> int:
    """Return the shared memory that a sample of a dataset needs, in bytes, as the dataset reports it if it does."""
    own = getattr(dataset, "sample_bytes", None)
    return int(own(shape)) if own is not None else _SAMPLE_BYTES * shape.voxels


def _is_composed(dataset: Any) -> bool:
    """Return whether a dataset is exactly one of PyTorch's two classes; subclasses may change the items."""
    return any(isinstance(dataset, kind) and type(dataset).__getitem__ is kind.__getitem__ for kind in _KINDS)


def _parts(dataset: Any) -> Iterator[Any]:
    """Yield the leaf datasets."""
    if not _is_composed(dataset):
        yield dataset
    else:
        for inner in [dataset.dataset] if isinstance(dataset, Subset) else dataset.datasets:
            yield from _parts(inner)


def _find(dataset: Any, item: int) -> tuple[Any, int]:
    """Return the part that has an item, and the item's number in it."""
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
