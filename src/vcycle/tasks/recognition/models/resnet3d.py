"""3-D ResNets of one pathway: I3D, Slow and C2D, plain or with non-local blocks, down to what a CPU can train."""

from collections.abc import Sequence

from torch import Tensor, nn

from vcycle.tasks.recognition.models.blocks import initialise
from vcycle.tasks.recognition.models.head import Head
from vcycle.tasks.recognition.models.nonlocal_block import NonLocalForm
from vcycle.tasks.recognition.models.stages import Extents, block_named, check_lengths, make_stage, make_stem

__all__ = ["ResNet3d"]


class ResNet3d(nn.Module):
    """A 3-D ResNet: stem, stages of doubled stride, average pooling, linear classifier.

    The stem and every stage but the first halve height and width (rounded up); time keeps its extent unless
    ``temporal_pool`` or a stage's temporal stride says otherwise, so that work is proportional to voxels.

    Takes ``(B, channels_in, T, H, W)`` and returns logits ``(B, classes)``. With bottlenecks and a pooled stem it is
    I3D, Slow or C2D, as the extents in time say (Carreira and Zisserman 2017; Wang et al. 2018).

    Args:
        classes: outputs.
        stem_width: channels of the stem; None for the first stage's width.
        widths: inner channels of each stage (outside, a bottleneck has four times as many).
        blocks: residual blocks in each stage.
        block: ``basic`` or ``bottleneck``.
        temporal_kernels: extent in time of each stage's convolutions; a list for a stage whose blocks differ, which
            they go through over again.
        temporal_strides: stride in time of each stage; None for 1 throughout.
        temporal_pool: frames that are max-pooled into one after the first stage.
        stem_kernel: extents of the stem's convolution.
        stem_pool: halve height and width once more after the stem.
        nonlocal_every: residual blocks per non-local block after them, in each stage, 0 for none; None for none at all.
        nonlocal_form: how non-local blocks weigh: ``dot`` (the paper's) or ``softmax`` (the public configurations').
        dropout: before the classifier.
        zero_gamma: start each residual and non-local block as the identity.
        channels_in: channels of the clip.

    Raises:
        RecipeError: the per-stage lists differ in length, or an unknown ``block`` or ``nonlocal_form``.
    """

    def __init__(
        self,
        classes: int,
        *,
        stem_width: int | None = None,
        widths: Sequence[int] = (16, 32, 64),
        blocks: Sequence[int] = (1, 1, 1),
        block: str = "basic",
        temporal_kernels: Sequence[Extents] = (3, 3, 3),
        temporal_strides: Sequence[int] | None = None,
        temporal_pool: int = 1,
        stem_kernel: tuple[int, int, int] = (3, 3, 3),
        stem_pool: bool = False,
        nonlocal_every: Sequence[int] | None = None,
        nonlocal_form: NonLocalForm = "dot",
        dropout: float = 0.0,
        zero_gamma: bool = True,
        channels_in: int = 3,
    ) -> None:
        super().__init__()
        strides = [1] * len(widths) if temporal_strides is None else list(temporal_strides)
        nonlocals = [0] * len(widths) if nonlocal_every is None else list(nonlocal_every)
        check_lengths(
            widths=widths,
            blocks=blocks,
            temporal_kernels=temporal_kernels,
            temporal_strides=strides,
            nonlocal_every=nonlocals,
        )
        channels = widths[0] if stem_width is None else stem_width
        t, h, w = stem_kernel
        self.nonlocal_form = nonlocal_form if any(nonlocals) else None
        self.temporal_strides, self.temporal_pool, self.stem_pool = tuple(strides), temporal_pool, stem_pool
        self.stem = make_stem(channels_in, channels, (t, h, w), pool=stem_pool)
        self.stages = nn.Sequential()
        for index, width in enumerate(widths):
            space = 1 if index == 0 else 2
            stage = make_stage(
                block,
                channels,
                width,
                blocks[index],
                temporal_kernels[index],
                (strides[index], space, space),
                nonlocal_every=nonlocals[index],
                nonlocal_form=nonlocal_form,
            )
            self.stages.append(stage)
            channels = width * block_named(block).expansion
        if temporal_pool > 1:
            self.stages[0].add_module("pool", nn.MaxPool3d((temporal_pool, 1, 1)))
        self.head = Head(channels, classes, dropout, stride=2 ** (len(widths) + stem_pool))
        initialise(self, zero_gamma=zero_gamma)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of clips ``(B, C, T, H, W)``."""
        logits: Tensor = self.head([self.stages(self.stem(x))])
        return logits
