"""Splits the batch of a step over ranks (data parallel)."""

from vcycle.errors import PlanError
from vcycle.plan.arguments import check_number

__all__ = ["rank_slice"]


def rank_slice(batch: int, bn_batch: int, rank: int, world: int) -> range:
    """The positions in the global batch that a rank computes.

    If there are at least as many BatchNorm groups as ranks, ranks take whole groups, in order and as evenly as
    possible. Otherwise the batch is split as evenly as possible, and ranks share groups.

    Args:
        batch: Clips in the global batch.
        bn_batch: Clips in a BatchNorm group; the last group of a batch may be smaller.
        rank: This rank, in ``[0, world)``.
        world: Number of ranks.

    Raises:
        PlanError: if there is no such rank, or an argument is no whole number, or a batch or group is empty.

    Example:
        >>> [list(rank_slice(10, 4, rank, 2)) for rank in range(2)]
        [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    """
    for name, value in (("batch", batch), ("bn_batch", bn_batch), ("rank", rank), ("world", world)):
        check_number(name, value, whole=True)
    if min(batch, bn_batch) < 1:
        raise PlanError(f"batch {batch} in groups of bn_batch {bn_batch}: at least 1 of each is needed")
    if not 0 <= rank < world:
        raise PlanError(f"rank {rank} is not one of {world} ranks: 0 to {world - 1} are")
    groups = -(-batch // bn_batch)
    unit = bn_batch if groups >= world else 1
    units = -(-batch // unit)
    first, last = rank * units // world, (rank + 1) * units // world
    return range(min(first * unit, batch), min(last * unit, batch))
