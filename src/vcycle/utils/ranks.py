"""The rank of this process in a data parallel job, found without importing torch."""

import os
import sys

from vcycle.errors import PlanError, VcycleError, shown

__all__ = ["launched_here", "launched_world", "rank_and_world"]


def rank_and_world(rank: int | None = None, world: int | None = None) -> tuple[int, int]:
    """This process's rank and the number of ranks.

    They are the given ones; otherwise those of ``torch.distributed`` if its process group is initialised; otherwise
    those of the environment (``RANK`` and ``WORLD_SIZE``, as ``torchrun`` sets them); otherwise 0 of 1.

    Args:
        rank: This rank, in ``[0, world)``; None to find it.
        world: Number of ranks; None to find it. Give both or neither.

    Raises:
        PlanError: if only one of them is given.
        VcycleError: if the environment's values are not a rank and a number of ranks.

    Example:
        >>> rank_and_world(1, 2)
        (1, 2)
    """
    if rank is None and world is None:
        rank, world = _found()
    if rank is None or world is None:
        raise PlanError(f"rank={shown(rank)}, world={shown(world)}: give both, or neither to have them found")
    return rank, world


def launched_world() -> int:
    """Number of processes that ``torchrun`` started (``WORLD_SIZE``); 1 without it.

    Raises:
        VcycleError: if the variable is not a positive integer.
    """
    said = os.environ.get("WORLD_SIZE", "1")
    if not said.isdecimal() or int(said) < 1:
        raise VcycleError(f"WORLD_SIZE is {said!r}: it must be a number of processes, as torchrun sets it")
    return int(said)


def launched_here(unknown: int) -> int:
    """Number of these processes on this machine (``LOCAL_WORLD_SIZE``), or `unknown` where that variable is missing."""
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(said) if said.isdecimal() and int(said) else unknown


def _found() -> tuple[int, int]:
    distributed = sys.modules.get("torch.distributed")  # nobody has initialised what nobody has imported
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    world = launched_world()
    said = os.environ.get("RANK", "0" if world == 1 else "")
    if not said.isdecimal() or int(said) >= world:
        raise VcycleError(
            f"WORLD_SIZE is {world}, but RANK is {said!r}: it must be a number from 0 to {world - 1}, as torchrun sets "
            "it; initialise torch.distributed before loading, or give rank and world"
        )
    return int(said), world
