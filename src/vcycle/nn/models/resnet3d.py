"""A small 3-D ResNet that a CPU can train."""

from collections.abc import Sequence

from torch import Tensor, nn

from vcycle.errors import RecipeError
from vcycle.nn.models.blocks import BasicBlock, ConvNorm, Head, initialise

__all__ = ["ResNet3d"]


class ResNet3d(nn.Module):
    """A 3-D ResNet of basic blocks: stem, stages of doubled stride, average pooling, linear classifier.

    The stem and every stage but the first halve height and width (rounded up); time keeps its extent unless a
    stage's temporal stride says otherwise, so that work is proportional to voxels.

    Takes ``(B, channels_in, T, H, W)`` and returns logits ``(B, classes)``.

    Args:
        classes: outputs.
        widths: channels of each stage.
        blocks: residual blocks in each stage.
        temporal_kernels: extent in time of each stage's convolutions.
        temporal_strides: stride in time of each stage; None for 1 throughout.
        stem_kernel: extents of the stem's convolution.
        dropout: before the classifier.
        zero_gamma: start each residual block as the identity.
        channels_in: channels of the clip.

    Raises:
        RecipeError: the per-stage lists differ in length.
    """

    def __init__(
        self,
        classes: int,
        *,
        widths: Sequence[int] = (16, 32, 64),
        blocks: Sequence[int] = (1, 1, 1),
        temporal_kernels: Sequence[int] = (3, 3, 3),
        temporal_strides: Sequence[int] | None = None,
        stem_kernel: tuple[int, int, int] = (3, 3, 3),
        dropout: float = 0.0,
        zero_gamma: bool = True,
        channels_in: int = 3,
    ) -> None:
        super().__init__()
        strides = [1] * len(widths) if temporal_strides is None else list(temporal_strides)
        if not len(widths) == len(blocks) == len(temporal_kernels) == len(strides):
            raise RecipeError(
                f"widths {tuple(widths)}, blocks {tuple(blocks)}, temporal_kernels {tuple(temporal_kernels)} and "
                f"temporal_strides {tuple(strides)} differ in length; accepted: one value per stage in each"
            )
        self.stem = ConvNorm(channels_in, widths[0], _triple(stem_kernel), (1, 2, 2))
        stages: list[nn.Module] = []
        channels = widths[0]
        for index, width in enumerate(widths):
            space = 1 if index == 0 else 2
            for block in range(blocks[index]):
                stride = (strides[index], space, space) if block == 0 else (1, 1, 1)
                stages.append(BasicBlock(channels, width, temporal_kernels[index], stride))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.head = Head(channels, classes, dropout)
        initialise(self, zero_gamma=zero_gamma)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of clips ``(B, C, T, H, W)``."""
        logits: Tensor = self.head([self.stages(self.stem(x))])
        return logits


def _triple(kernel: Sequence[int]) -> tuple[int, int, int]:
    t, h, w = kernel
    return t, h, w
