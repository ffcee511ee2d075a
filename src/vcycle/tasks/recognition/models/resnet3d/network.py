"""The 3-D ResNet itself."""

from typing import Any

from torch import Tensor, nn

from vcycle.tasks.classification.head import Head
from vcycle.tasks.recognition.models.blocks import initialise
from vcycle.tasks.recognition.models.resnet3d import ResNet3dOptions
from vcycle.tasks.recognition.models.stages import BLOCKS, make_stage, make_stem

__all__ = ["ResNet3d"]


class ResNet3d(nn.Module):
    """A 3-D ResNet: stem, stages of doubled stride, average pooling, linear classifier.

    The stem and every stage but the first halve height and width (rounded up); time keeps its extent unless
    ``temporal_pool`` or a stage's temporal stride says otherwise, so that work is proportional to voxels.

    Takes ``(B, channels_in, T, H, W)`` and returns logits ``(B, classes)``. With bottlenecks and a pooled stem it is
    I3D, Slow or C2D, as the extents in time say (Carreira and Zisserman 2017; Wang et al. 2018).

    Args:
        classes: outputs.
        options: fields of :class:`ResNet3dOptions`.

    Raises:
        RecipeError: an option is unknown or not accepted, or the per-stage lists differ in length.
    """

    def __init__(self, classes: int, **options: Any) -> None:
        super().__init__()
        o: ResNet3dOptions = ResNet3dOptions.of("ResNet3d", options)
        strides = o.temporal_strides or (1,) * len(o.widths)
        nonlocals = o.nonlocal_every or (0,) * len(o.widths)
        channels = o.widths[0] if o.stem_width is None else o.stem_width
        self.nonlocal_form = o.nonlocal_form if o.has_nonlocal else None
        self.temporal_strides, self.temporal_pool, self.stem_pool = strides, o.temporal_pool, o.stem_pool
        self.stem = make_stem(o.channels_in, channels, o.stem_kernel, pool=o.stem_pool)
        self.stages = nn.Sequential()
        for index, width in enumerate(o.widths):
            space = 1 if index == 0 else 2
            stage = make_stage(
                o.block,
                channels,
                width,
                o.blocks[index],
                o.temporal_kernels[index],
                (strides[index], space, space),
                nonlocal_every=nonlocals[index],
                nonlocal_form=o.nonlocal_form,
            )
            self.stages.append(stage)
            channels = width * BLOCKS[o.block].expansion
        if o.temporal_pool > 1:
            self.stages[0].add_module("pool", nn.MaxPool3d((o.temporal_pool, 1, 1)))
        self.head = Head(channels, classes, o.dropout, stride=2 ** (len(o.widths) + o.stem_pool))
        initialise(self, zero_gamma=o.zero_gamma)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of clips ``(B, C, T, H, W)``."""
        logits: Tensor = self.head([self.stages(self.stem(x))])
        return logits
