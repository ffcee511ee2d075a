"""BatchNorm over a batch that several ranks compute together, each one slice of it (data parallel).

If every slice starts at a block of clips, no block spans ranks, and ranks only merge the running statistics, once per
step. If there are fewer blocks than ranks, ranks share blocks: every layer exchanges statistics in the forward and the
backward pass. Either way the result equals that of one process, to rounding, and is bit-identical on all ranks, as all
merge the same numbers in rank order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from vcycle.nn.blocks import blocks_of
from vcycle.nn.moments import Moments, merge_moments
from vcycle.plan import BatchShape, Step, rank_slice
from vcycle.plan.arguments import check_kind
from vcycle.utils.ranks import rank_and_world

__all__ = ["BatchPartition", "merge_over_ranks", "normalise_shared"]


class _Piece(NamedTuple):
    """Consecutive clips of one block on one rank."""

    block: int
    rank: int
    clips: int


@dataclass(frozen=True, kw_only=True)
class BatchPartition:
    """How ranks share a batch."""

    clips: tuple[int, ...]
    """Number of clips of each rank, in rank order."""
    rank: int
    """This rank."""
    group: Any = None
    """The process group of the ranks; None for the default one."""

    @classmethod
    def of(
        cls,
        step: Step | BatchShape,
        *,
        rank: int | None = None,
        world: int | None = None,
        group: Any = None,
    ) -> "BatchPartition":
        """How ranks share the batch of a step, as ``vcycle.loader`` distributes its clips.

        Args:
            step: ``plan[index]``, or a batch shape of the plan.
            rank: This rank, in ``[0, world)``; by default it is found, as in ``vcycle.loader``.
            world: Number of ranks, found with the rank.
            group: The process group of the ranks; None for the default one.

        Raises:
            PlanError: ``step`` is neither, ``rank`` is not one of ``world``, or only one of them is given.

        Example:
            >>> cell = BatchShape(frames=8, size=112, batch=10, bn_batch=4)
            >>> BatchPartition.of(cell, rank=1, world=2).clips
            (4, 6)
        """
        if not isinstance(step, BatchShape):
            check_kind("step", step, Step, "vcycle.BatchPartition.of(step)")
        rank, world = rank_and_world(rank, world)
        rank_slice(step.batch, step.bn_batch, rank, world)  # checks the rank
        places = [rank_slice(step.batch, step.bn_batch, each, world) for each in range(world)]
        return cls(clips=tuple(map(len, places)), rank=rank, group=group)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The position in the batch at which each rank's clips start, and the end of the batch."""
        return tuple(accumulate(self.clips, initial=0))

    @property
    def loss_weight(self) -> float:
        """The factor of the rank's mean loss, so that gradients averaged over ranks are those of the batch's mean.

        Example:
            >>> [BatchPartition(clips=(4, 6), rank=rank).loss_weight for rank in (0, 1)]
            [0.8, 1.2]
        """
        return len(self.clips) * self.clips[self.rank] / sum(self.clips)

    def has_whole_blocks(self, bn_batch: int, values: int = 2) -> bool:
        """Whether no block of ``bn_batch`` clips spans two ranks.

        Args:
            bn_batch: Clips in a block.
            values: Values per channel in one clip; only whether there are several matters.
        """
        blocks = blocks_of(self.starts[-1], bn_batch, values)
        return all(blocks.begins_at(start) for start in self.starts[:-1])

    def pieces(self, bn_batch: int, values: int = 2) -> list[_Piece]:
        """The batch split at the edges of blocks and of ranks, in order; arguments as for ``has_whole_blocks``."""
        blocks = blocks_of(self.starts[-1], bn_batch, values)
        cuts = sorted({*self.starts, *accumulate(blocks.sizes)})
        found, rank = [], 0
        for first, end in pairwise(cuts):
            while first >= self.starts[rank + 1]:
                rank += 1
            found.append(_Piece(block=blocks.holding(first), rank=rank, clips=end - first))
        return found


def merge_over_ranks(layers: Sequence[Moments], sharing: BatchPartition) -> list[Moments]:
    """Merge each layer's moments over ranks, in one exchange for all layers.

    Moments of layers that share blocks already cover the whole batch, and stay as they are.
    """
    open_ones = [moments for moments in layers if not moments.of_all_ranks]
    if not open_ones:
        return list(layers)
    mine = torch.cat([part for moments in open_ones for part in (moments.mean, moments.m2)])
    sizes = [len(part) for moments in open_ones for part in (moments.mean, moments.m2)]
    ranks = [iter(torch.split(vector, sizes)) for vector in _gathered(mine, sharing)]
    own = sharing.clips[sharing.rank]
    return [
        moments
        if moments.of_all_ranks
        else merge_moments(
            [
                Moments(moments.values // own * clips, next(parts), next(parts))
                for clips, parts in zip(sharing.clips, ranks, strict=True)
            ]
        )
        for moments in layers
    ]


def normalise_shared(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, bn_batch: int, eps: float, sharing: BatchPartition
) -> tuple[Tensor, Moments]:
    """Normalise this rank's clips by blocks that span ranks; return the output and the moments of the whole batch.

    Args:
        x: Shape ``(B, C, ...)``, this rank's clips.
        weight: Scale, or None.
        bias: Shift, or None.
        bn_batch: Clips per block.
        eps: Added to the variance.
        sharing: How the ranks share the batch.
    """
    pieces = sharing.pieces(bn_batch, x.shape[2:].numel())
    output, counts, means, m2s = _SharedNorm.apply(x, weight, bias, eps, pieces, sharing)
    blocks = [Moments(values, mean, m2) for values, mean, m2 in zip(counts, means.unbind(), m2s.unbind(), strict=True)]
    return output, merge_moments(blocks)._replace(of_all_ranks=True)


class _SharedNorm(torch.autograd.Function):
    """BatchNorm over blocks of which this rank computes pieces.

    Returns the output, each block's number of values and, shape ``(blocks, C)``, means and sums of squared deviations.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        pieces: list[_Piece],
        sharing: BatchPartition,
    ) -> tuple[Tensor, list[int], Tensor, Tensor]:
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        own = [piece for piece in pieces if piece.rank == sharing.rank]
        parts = torch.split(x, [piece.clips for piece in own])
        axes = [axis for axis in range(x.dim()) if axis != 1]
        per_clip = x.shape[2:].numel()
        table = x.new_zeros((pieces[-1].block + 1, 2, x.shape[1]), dtype=dtype)
        for piece, part in zip(own, parts, strict=True):
            variance, mean = torch.var_mean(part.to(dtype), axes, correction=0)
            table[piece.block, 0] = mean
            table[piece.block, 1] = variance * (piece.clips * per_clip)
        ranks = _gathered(table, sharing)
        blocks: list[list[Moments]] = [[] for _ in table]
        for piece in pieces:
            mean, m2 = ranks[piece.rank][piece.block].unbind()
            blocks[piece.block].append(Moments(piece.clips * per_clip, mean, m2))
        merged = [merge_moments(parts) for parts in blocks]
        counts = [moments.values for moments in merged]
        means, m2s = torch.stack([block.mean for block in merged]), torch.stack([block.m2 for block in merged])
        inverse_stds = torch.stack([(moments.m2 / moments.values + eps).rsqrt() for moments in merged])
        output = torch.empty_like(x)
        for piece, part, out in zip(own, parts, torch.split(output, [piece.clips for piece in own]), strict=True):
            scale = inverse_stds[piece.block] if weight is None else inverse_stds[piece.block] * weight.to(dtype)
            shift = -means[piece.block] * scale
            if bias is not None:
                shift = shift + bias.to(dtype)
            out.copy_(part.to(dtype) * _channels(scale, x) + _channels(shift, x))
        ctx.save_for_backward(x, weight, means, inverse_stds)
        ctx.own, ctx.counts, ctx.sharing, ctx.has_bias = own, counts, sharing, bias is not None
        ctx.mark_non_differentiable(means, m2s)
        return output, counts, means, m2s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, means, inverse_stds = ctx.saved_tensors
        sizes = [piece.clips for piece in ctx.own]
        axes = [axis for axis in range(x.dim()) if axis != 1]
        table = means.new_zeros((len(means), 2, x.shape[1]))
        centered, grads = [], []
        for piece, part, grad_part in zip(ctx.own, torch.split(x, sizes), torch.split(grad, sizes), strict=True):
            normal = (part.to(means.dtype) - _channels(means[piece.block], x)) * _channels(inverse_stds[piece.block], x)
            grad_part = grad_part.to(means.dtype)
            table[piece.block, 0] += grad_part.sum(axes)
            table[piece.block, 1] += (grad_part * normal).sum(axes)
            centered.append(normal)
            grads.append(grad_part)
        grad_bias, grad_weight = table.sum(0).unbind()
        sums = torch.stack(_gathered(table, ctx.sharing)).sum(0)
        outputs = []
        for piece, normal, grad_part in zip(ctx.own, centered, grads, strict=True):
            sum_grad, sum_product = (each / ctx.counts[piece.block] for each in sums[piece.block].unbind())
            scale = inverse_stds[piece.block] if weight is None else inverse_stds[piece.block] * weight.to(means.dtype)
            inner = grad_part - _channels(sum_grad, x) - normal * _channels(sum_product, x)
            outputs.append((inner * _channels(scale, x)).to(x.dtype))
        return (
            torch.cat(outputs),
            None if weight is None else grad_weight.to(weight.dtype),
            grad_bias if ctx.has_bias else None,
            None,
            None,
            None,
        )


def _gathered(mine: Tensor, sharing: BatchPartition) -> list[Tensor]:
    """All-gather a tensor, in rank order."""
    if len(sharing.clips) == 1:
        return [mine]  # so that a loop for several ranks also runs on one, without a process group
    everyone = [torch.empty_like(mine) for _ in sharing.clips]
    distributed.all_gather(everyone, mine.contiguous(), group=sharing.group)
    return everyone


def _channels(values: Tensor, like: Tensor) -> Tensor:
    """One value per channel, shaped to be combined with ``like``."""
    return values.view(1, -1, *[1] * (like.dim() - 2))
