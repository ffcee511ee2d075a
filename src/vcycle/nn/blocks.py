"""Splits a batch into the blocks of consecutive clips that BatchNorm normalises together."""

from typing import NamedTuple

__all__ = ["Blocks", "blocks_of"]


class Blocks(NamedTuple):
    """A batch split into blocks: a number of equal size, and at most one of another size."""

    equal: int
    """Number of blocks of equal size."""
    clips: int
    """Clips in each of these."""
    rest: int
    """Clips in the last block if its size differs; 0 if there is none."""

    @property
    def is_one(self) -> bool:
        """Whether the batch is a single block."""
        return self.equal == 0 or (self.equal == 1 and self.rest == 0)

    @property
    def sizes(self) -> list[int]:
        """Clips in each block, in order."""
        return [self.clips] * self.equal + [self.rest] * (self.rest > 0)

    def holding(self, clip: int) -> int:
        """The index of the block that contains a clip."""
        return min(clip // self.clips, self.equal)

    def begins_at(self, clip: int) -> bool:
        """Whether no block spans a position, that is, has clips on both sides of it."""
        return clip % self.clips == 0 and clip // self.clips <= self.equal


def blocks_of(clips: int, bn_batch: int, values: int) -> Blocks:
    """Return the blocks of a batch: blocks of ``bn_batch`` clips, and the remainder as a block of its own.

    A single value per channel has no variance. If a block of one clip would have only one, it joins the previous
    block, and blocks have at least two clips.

    Args:
        clips: Clips in the batch.
        bn_batch: Clips in a block.
        values: Values per channel in one clip.

    Example:
        >>> blocks_of(9, 4, values=49).sizes, blocks_of(9, 4, values=1).sizes
        ([4, 4, 1], [4, 5])
    """
    size = max(bn_batch, 2) if values == 1 else bn_batch
    equal, rest = divmod(clips, size)
    if values == 1 and rest == 1 and equal:
        equal, rest = equal - 1, size + 1
    return Blocks(equal, size, rest)
