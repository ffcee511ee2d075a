"""Stems and stages: what the 3-D networks are put together from."""

from collections.abc import Sequence

from torch import nn

from vcycle.tasks.recognition.models.blocks import BasicBlock, BottleneckBlock, ConvNorm
from vcycle.tasks.recognition.models.nonlocal_block import NonLocalBlock
from vcycle.tasks.recognition.models.options import Block, NonLocalForm

__all__ = ["BLOCKS", "Extents", "make_stage", "make_stem"]

Extents = int | Sequence[int]
"""Extents in time of a stage's convolutions: one for all its blocks, or a list that they go through, over again."""

BLOCKS: dict[Block, type[BasicBlock | BottleneckBlock]] = {"basic": BasicBlock, "bottleneck": BottleneckBlock}
"""Residual blocks by the name that options give them."""


def make_stem(channels_in: int, width: int, kernel: tuple[int, int, int], *, pool: bool) -> nn.Sequential:
    """Return the first layers of a network: height and width halved, and with ``pool`` halved once more."""
    stem = nn.Sequential(ConvNorm(channels_in, width, kernel, (1, 2, 2)))
    if pool:
        stem.append(nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)))
    return stem


def make_stage(
    block: Block,
    channels_in: int,
    width: int,
    depth: int,
    extents: Extents,
    stride: tuple[int, int, int],
    *,
    nonlocal_every: int = 0,
    nonlocal_form: NonLocalForm = "dot",
) -> nn.Sequential:
    """Return a stage of residual blocks, named by their number, and non-local blocks named after the one before.

    Args:
        block: ``basic`` or ``bottleneck``.
        channels_in: input channels.
        width: inner channels of the blocks.
        depth: residual blocks.
        extents: in time, of the blocks' convolutions.
        stride: of the first block.
        nonlocal_every: residual blocks per non-local block after them; 0 for none.
        nonlocal_form: of the non-local blocks.
    """
    kind = BLOCKS[block]
    pattern = [extents] if isinstance(extents, int) else list(extents)
    stage = nn.Sequential()
    for index in range(depth):
        first = index == 0
        channels = channels_in if first else width * kind.expansion
        extent = pattern[index % len(pattern)]
        stage.add_module(str(index), kind(channels, width, extent, stride if first else (1, 1, 1)))
        if nonlocal_every and (index + 1) % nonlocal_every == 0:
            stage.add_module(f"nonlocal{index}", NonLocalBlock(width * kind.expansion, nonlocal_form))
    return stage
