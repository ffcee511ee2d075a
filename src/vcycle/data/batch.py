"""Batches, and how samples are collated into them."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import default_collate

from vcycle.data.dataset import Replacement, Sample, stack_labels
from vcycle.errors import DataError

__all__ = ["Batch", "collate", "collate_any", "pin"]

_STAND_IN = torch.zeros(())
_TOLD: set[str] = set()
"""Notes already shown in this process: datasets and their loaders are recreated for each evaluation."""


class Batch(NamedTuple):
    """This rank's clips of one step."""

    clips: Tensor
    """uint8 ``(B, T, H, W, 3)``."""

    labels: Tensor
    """Targets: int64 ``(B,)``; float32 ``(B, classes)`` of zeros and ones for multi-label sets; or the task's dense
    targets, such as the high-resolution clips, uint8 ``(B, T, sH, sW, 3)``."""

    indices: Tensor
    """int64 ``(B,)``: the video of each clip."""

    positions: Tensor
    """int64 ``(B,)``: positions in the sample stream; -1 in evaluation."""

    replaced: list[Replacement]
    """Videos that could not be read. Evaluation leaves them out of the batch."""

    faults: list[str]
    """Faults of clips that were still usable."""


def collate(samples: Sequence[Sample], memory: Tensor | None = None) -> Batch:
    """Stack samples of one shape into a batch.

    Args:
        samples: One or more samples.
        memory: Shared memory; clips already stored in it one after another are not copied.

    Warns:
        UserWarning: For each sample's note, once per process.
    """
    for sample in samples:
        if (note := sample.note) is not None and note.about not in _TOLD:
            _TOLD.add(note.about)
            warnings.warn(f"{note.about}; the first is {note.example}", stacklevel=2)
    return Batch(
        clips=_stack([sample.clip for sample in samples], memory),
        labels=stack_labels([sample.label for sample in samples]),
        indices=torch.tensor([sample.index for sample in samples]),
        positions=torch.tensor([sample.position for sample in samples]),
        replaced=[replacement for sample in samples for replacement in sample.replaced],
        faults=[sample.fault for sample in samples if sample.fault],
    )


def collate_any(items: list[Any], memory: Tensor | None = None) -> Any:
    """Collate samples, without those that are only a ``Replacement``; anything else goes to ``default_collate``."""
    samples = [item for item in items if isinstance(item, Sample)]
    unreadable = [item for item in items if isinstance(item, Replacement)]
    if len(samples) + len(unreadable) == len(items):
        batch = collate(samples, memory) if samples else _no_clips()
        return batch._replace(replaced=batch.replaced + unreadable)
    with _fitting():
        place = _clip_place(items)
        if place is None:
            return default_collate(items)
        # Contiguous clips are not copied; the collation of the rest does not depend on them.
        clips = _stack([item[place] for item in items], memory)
        return _with(default_collate([_with(item, place, _STAND_IN) for item in items]), place, clips)


@contextmanager
def _fitting() -> Iterator[None]:
    """Turn errors of items that do not fit together into one for the user.

    Raises:
        DataError: If they do not.
    """
    try:
        yield
    except (RuntimeError, TypeError, StopIteration) as error:
        raise DataError(
            f"items of a batch do not fit together: {error}; every value must have one shape in all items"
        ) from error


def _clip_place(items: list[Any]) -> Any:
    """The index or key of the clip in items: the first element of tuples, the largest tensor of dicts; None if none."""
    first = items[0]
    if all(isinstance(item, tuple | list) and item and isinstance(item[0], Tensor) for item in items):
        return 0
    if not isinstance(first, dict):
        return None
    tensors = {key: value.numel() for key, value in first.items() if isinstance(value, Tensor)}
    place = max(tensors, key=tensors.__getitem__, default=None)
    found = all(isinstance(item, dict) and isinstance(item.get(place), Tensor) for item in items)
    return place if found else None


def _with(item: Any, place: Any, value: Any) -> Any:
    """The item with another value at an index or key."""
    if isinstance(item, dict):
        return {**item, place: value}
    rest = [value if index == place else other for index, other in enumerate(item)]
    return type(item)(*rest) if hasattr(item, "_fields") else type(item)(rest)


def pin(value: Any) -> Any:
    """Return a batch with its tensors in pinned memory; tensors already pinned stay as they are."""
    if isinstance(value, Tensor):
        return value if value.is_pinned() else value.pin_memory()
    if isinstance(value, Mapping):
        return {key: pin(inner) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(pin, value))
    return type(value)(map(pin, value)) if isinstance(value, tuple | list) else value


def _stack(clips: list[Tensor], memory: Tensor | None) -> Tensor:
    first = clips[0]
    if memory is None or not first.is_contiguous():
        return torch.stack(clips)
    start, size = first.data_ptr(), first.numel() * first.element_size()
    inside = memory.data_ptr() <= start and start + size * len(clips) <= memory.data_ptr() + memory.numel()
    for place, clip in enumerate(clips):
        in_place = inside and clip.data_ptr() == start + place * size and clip.is_contiguous()
        if not in_place or clip.shape != first.shape or clip.dtype != first.dtype:
            return torch.stack(clips)
    return first.as_strided((len(clips), *first.shape), (first.numel(), *first.stride()))


def _no_clips() -> Batch:
    nothing = torch.empty(0, dtype=torch.int64)
    clips = torch.empty(0, 0, 0, 0, 3, dtype=torch.uint8)
    return Batch(clips=clips, labels=nothing, indices=nothing, positions=nothing, replaced=[], faults=[])
