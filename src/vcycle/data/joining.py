"""Joins and cuts batches of any structure: tensors, arrays and lists with one entry per clip, nested in any way."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vcycle.errors import DataError

__all__ = ["BatchPart", "Joiner", "Key", "clips_in", "clips_of"]

Key = str | int
"""The place of the clips: a name in a mapping, a dataclass or a named tuple, or a position in a tuple."""

_Path = tuple[Key, ...]
_Role = Literal["rows", "entries", "fields", "whole"]


class BatchPart(NamedTuple):
    """Consecutive clips of one batch."""

    batch: Any
    start: int
    stop: int
    clips: int
    """Number of clips in the whole batch."""


def _parts_of(value: Any) -> dict[Any, Any] | None:
    """Return the parts of a container by name or position; None for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return dict(enumerate(value)) if isinstance(value, tuple | list) else None


def _with_parts(value: Any, parts: dict[Any, Any]) -> Any:
    """Return a container of the same kind with other parts."""
    if isinstance(value, Mapping):
        if not isinstance(value, MutableMapping):
            return parts
        new = copy.copy(value)
        new.update(parts)
        return new
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **parts)
    return type(value)(*parts.values()) if hasattr(value, "_fields") else type(value)(parts.values())


def named(path: _Path) -> str:
    """Return a place in a batch as Python writes it."""
    return "batch" + "".join(f"[{key!r}]" for key in path)


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _described(value: Any) -> str:
    return f"{type(value).__name__} {tuple(value.shape)}" if _is_array(value) else type(value).__name__


def clips_of(batch: Any, key: Key | None) -> tuple[_Path, Any]:
    """Find the clips in a batch.

    Args:
        batch: A tensor or array; a tuple or list that starts with the clips, or with what holds them; or a mapping or
            dataclass.
        key: Where the clips are. By default they are the first element of a tuple, and the only five-dimensional
            tensor of a mapping or dataclass.

    Raises:
        DataError: If they are not found.
    """
    path: _Path = ()
    here, left = batch, key
    while not _is_array(here):
        parts = _parts_of(here) or {}
        by_name = not isinstance(here, tuple | list) or hasattr(here, "_fields")
        if left is not None and left in parts:
            chosen, left = left, None
        elif not by_name and parts and (left is None or isinstance(left, str)):
            chosen = 0
        elif left is None and by_name and isinstance(here, tuple):
            chosen = next(iter(parts), "")
        else:
            five = [name for name, part in parts.items() if _is_array(part) and part.ndim == 5]
            if left is not None or len(five) != 1:
                has = ", ".join(f"{name!r} ({_described(part)})" for name, part in parts.items()) or "nothing"
                asked = f"no {left!r} in" if left is not None else "which part holds the clips of"
                hint = "accepted: a name or position there" if left is not None else "name it by key="
                raise DataError(f"{asked} {named(path)}, a {type(here).__name__} that has {has}; {hint}")
            chosen = five[0]
        path, here = (*path, chosen), parts[chosen]
    if left is not None:
        raise DataError(f"key={left!r}: {named(path)} is {_described(here)}, not something with names")
    return path, here


def clips_in(part: BatchPart, clips_at: _Path) -> Tensor:
    """Return the clips of a part."""
    here = part.batch
    for key in clips_at:
        here = (_parts_of(here) or {})[key]
    return torch.as_tensor(here[part.start : part.stop])


class Joiner:
    """Joins parts of batches of one stream.

    What a list means is decided at the first batch, so that it cannot change with a batch's length.
    """

    def __init__(self, device: torch.device | None) -> None:
        """Create a joiner that moves tensors to a device; they stay where they are by default."""
        self._device = device
        self._roles: dict[_Path, _Role] = {}

    def __call__(self, parts: Sequence[BatchPart], clips_at: _Path, clips: Sequence[Tensor]) -> Any:
        """Return the joined batch.

        Args:
            parts: Parts of batches.
            clips_at: Place of the clips in a batch.
            clips: The clips of each part, to put there.

        Raises:
            DataError: If the batches differ in structure, or have a value that is not per clip and differs.
        """
        return self._joined([part.batch for part in parts], _Cut(parts, clips_at, clips), ())

    def _joined(self, values: list[Any], cut: _Cut, path: _Path) -> Any:
        if path == cut.clips_at:
            return self._joined_rows(list(cut.clips), path)
        if path not in self._roles:
            self._roles[path] = _role(values[0], cut.parts[0].clips, inside=path == cut.clips_at[: len(path)])
        role = self._roles[path]
        if role == "whole":
            return self._same(values, path)
        if role == "fields":
            containers = [_parts_of(value) or {} for value in values]
            if any(parts.keys() != containers[0].keys() for parts in containers):
                kinds = " and ".join(dict.fromkeys(str(list(parts)) for parts in containers))
                raise DataError(f"batches of the stream differ: {named(path)} has {kinds}")
            return _with_parts(
                values[0],
                {key: self._joined([parts[key] for parts in containers], cut, (*path, key)) for key in containers[0]},
            )
        for value, part in zip(values, cut.parts, strict=True):
            if not _has_rows(value, part.clips):
                raise DataError(
                    f"batches of the stream differ: {named(path)} is {_described(value)}, without one entry for each "
                    f"of its {part.clips} clips"
                )
        rows = [value[part.start : part.stop] for value, part in zip(values, cut.parts, strict=True)]
        if role == "entries":
            return type(rows[0])(entry for part in rows for entry in part)
        return self._joined_rows(rows, path)

    def _joined_rows(self, rows: list[Any], path: _Path) -> Any:
        try:
            if isinstance(rows[0], np.ndarray):
                return rows[0] if len(rows) == 1 else np.concatenate(rows)
            moved = [part if self._device is None else part.to(self._device, non_blocking=True) for part in rows]
            return moved[0] if len(moved) == 1 else torch.cat(moved)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"batches of the stream cannot be joined: {named(path)}: {error}") from error

    def _same(self, values: list[Any], path: _Path) -> Any:
        """Return a value that is not per clip, and must be the same in all batches."""
        first = values[0]
        for other in values[1:]:
            if not _equal(first, other):
                raise DataError(
                    f"batches of the stream cannot be joined: {named(path)} is not one value per clip, and differs: "
                    f"{first!r} and {other!r}; leave it out of the batches or give it once per clip"
                )
        return first.to(self._device) if isinstance(first, Tensor) and self._device is not None else first


class _Cut(NamedTuple):
    """What is joined: parts of batches, and their clips."""

    parts: Sequence[BatchPart]
    clips_at: _Path
    clips: Sequence[Tensor]


def _role(value: Any, clips: int, *, inside: bool) -> _Role:
    """Return what a value of a batch is; ``inside`` says that the clips are in it."""
    if _is_array(value):
        return "rows" if _has_rows(value, clips) else "whole"
    parts = _parts_of(value)
    if parts is None:
        return "whole"
    if inside or not _has_rows(value, clips) or hasattr(value, "_fields"):
        return "fields"
    # Collated fields are a list of batches; without collation, a list has one entry per clip.
    return "fields" if all(_has_rows(part, clips) for part in value) else "entries"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return type(one) is type(other) and bool(np.array_equal(one, other))


def _has_rows(value: Any, clips: int) -> bool:
    """Return whether a value has one entry per clip."""
    if _is_array(value):
        return value.ndim > 0 and len(value) == clips
    return isinstance(value, tuple | list) and len(value) == clips
