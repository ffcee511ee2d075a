"""Tables of positions on lattices of tokens, resampled linearly."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Lattice", "clips_in", "resampled"]

Lattice = tuple[int, int, int]
"""Tokens along time, height and width."""

_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def resampled(table: Tensor, prefix: int, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """Resample a table of positions to another lattice.

    Args:
        table: ``(prefix + N, D)`` or ``(1, prefix + N, D)``, positions in row-major order of ``old``.
        prefix: Leading positions that are kept, such as a class token's.
        old: Lattice of the table.
        new: Lattice to return.
    """
    if tuple(old) == tuple(new):
        return table
    rows = table.reshape(-1, table.shape[-1])
    lattice = rows[prefix:].T.reshape(1, -1, *old)
    moved = F.interpolate(lattice.float(), size=tuple(new), mode=_MODES[len(old)], align_corners=False)
    resampled = torch.cat([rows[:prefix], moved.to(rows.dtype).flatten(2)[0].T])
    return resampled.reshape(*table.shape[:-2], -1, table.shape[-1])


def clips_in(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Tensor:
    """The clips among the arguments of a model's forward pass: the first, or the one of that name."""
    clips: Tensor = args[0] if args else kwargs[name]
    return clips
