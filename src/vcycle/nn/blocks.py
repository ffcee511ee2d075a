"""Which clips of a batch are normalised together: consecutive blocks of it, whatever computes them."""

from typing import NamedTuple

__all__ = ["Blocks", "blocks_of"]


class Blocks(NamedTuple):
    """A batch cut into blocks: some of equal size, and at most one more."""

    equal: int
    """How many have the same size."""
    clips: int
    """Clips in each of those."""
    rest: int
    """Clips in the last block, where it has another size; 0 where there is none."""

    @property
    def is_one(self) -> bool:
        """Whether the batch is a single block."""
        return self.equal == 0 or (self.equal == 1 and self.rest == 0)

    @property
    def sizes(self) -> list[int]:
        """Clips in each block, in order."""
        return [self.clips] * self.equal + [self.rest] * (self.rest > 0)

    def holding(self, clip: int) -> int:
        """The number of the block that has a clip."""
        return min(clip // self.clips, self.equal)

    def begins_at(self, clip: int) -> bool:
        """Whether no block has clips on both sides of a place."""
        return clip % self.clips == 0 and clip // self.clips <= self.equal


def blocks_of(clips: int, bn_batch: int, values: int) -> Blocks:
    """Return the blocks of a batch: of ``bn_batch`` clips, and a remainder, which is a block of its own.

    A single value per channel has no variance. Where a block of one clip would have just that, it joins the block
    before it, and blocks are of two clips at least.

    Args:
        clips: In the batch.
        bn_batch: Clips in a block.
        values: Values of a channel in one clip.

    Example:
        >>> blocks_of(9, 4, values=49).sizes, blocks_of(9, 4, values=1).sizes
        ([4, 4, 1], [4, 5])
    """
    size = max(bn_batch, 2) if values == 1 else bn_batch
    equal, rest = divmod(clips, size)
    if values == 1 and rest == 1 and equal:
        equal, rest = equal - 1, size + 1
    return Blocks(equal, size, rest)
