"""SlowFast itself."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from vcycle.errors import PlanError
from vcycle.tasks.classification.head import Head
from vcycle.tasks.recognition.models.blocks import ConvNorm, initialise
from vcycle.tasks.recognition.models.slowfast import SlowFastOptions
from vcycle.tasks.recognition.models.stages import BLOCKS, make_stage, make_stem

__all__ = ["SlowFast", "slow_frames"]


def slow_frames(frames: int, alpha: int) -> list[int]:
    """Return which of ``frames`` frames the slow pathway sees: ``frames // alpha``, spread from first to last.

    Example:
        >>> slow_frames(32, 4)
        [0, 4, 8, 13, 17, 22, 26, 31]
    """
    count = frames // alpha
    return torch.linspace(0, frames - 1, count, device="cpu").long().tolist()


class SlowFast(nn.Module):
    """A two-pathway network of residual stages, the fast pathway feeding the slow one between them.

    Takes ``(B, channels_in, T, H, W)`` with T a multiple of ``alpha`` and returns logits ``(B, classes)``. The
    defaults are the R50 of the paper's 8×8 model; time is never strided.

    Args:
        classes: outputs.
        options: fields of :class:`SlowFastOptions`.

    Raises:
        RecipeError: an option is unknown or not accepted, per-stage lists differ in length, or ``beta_inverse`` does
            not divide the widths.
    """

    def __init__(self, classes: int, **options: Any) -> None:
        super().__init__()
        o: SlowFastOptions = SlowFastOptions.of("SlowFast", options)
        self.alpha, self.stem_pool = o.alpha, o.stem_pool
        expansion = BLOCKS[o.block].expansion
        slow_channels = [o.stem_width, *(width * expansion for width in o.widths)]
        fast_channels = [channels // o.beta_inverse for channels in slow_channels]
        self.slow_stem = make_stem(o.channels_in, slow_channels[0], (1, o.stem_size, o.stem_size), pool=o.stem_pool)
        self.fast_stem = make_stem(o.channels_in, fast_channels[0], (5, o.stem_size, o.stem_size), pool=o.stem_pool)
        self.fusions = nn.ModuleList(
            ConvNorm(fast, fast * o.fusion_ratio, (o.fusion_kernel, 1, 1), (o.alpha, 1, 1))
            for fast in fast_channels[:-1]
        )
        self.slow_stages, self.fast_stages = nn.ModuleList(), nn.ModuleList()
        ends = zip(pairwise(slow_channels), pairwise(fast_channels), strict=True)
        for index, ((slow_in, _), (fast_in, _)) in enumerate(ends):
            width, depth, stride = o.widths[index], o.blocks[index], (1, 1, 1) if index == 0 else (1, 2, 2)
            slow_in += fast_in * o.fusion_ratio
            self.slow_stages.append(make_stage(o.block, slow_in, width, depth, o.slow_kernels[index], stride))
            self.fast_stages.append(
                make_stage(o.block, fast_in, width // o.beta_inverse, depth, o.fast_kernels[index], stride)
            )
        self.head = Head(
            slow_channels[-1] + fast_channels[-1], classes, o.dropout, stride=2 ** (len(o.widths) + o.stem_pool)
        )
        initialise(self, zero_gamma=o.zero_gamma)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of clips ``(B, C, T, H, W)``.

        Raises:
            PlanError: ``alpha`` does not divide T.
        """
        frames = x.shape[2]
        if frames % self.alpha:
            raise PlanError(f"SlowFast with alpha {self.alpha} got {frames} frames; accepted: a multiple of alpha")
        # Frame by frame: an index tensor would have to be sent to the device at every step.
        slow = torch.stack([x[:, :, frame] for frame in slow_frames(frames, self.alpha)], dim=2)
        slow, fast = self.slow_stem(slow), self.fast_stem(x)
        for fuse, slow_stage, fast_stage in zip(self.fusions, self.slow_stages, self.fast_stages, strict=True):
            slow = slow_stage(torch.cat([slow, fuse(fast)], dim=1))
            fast = fast_stage(fast)
        logits: Tensor = self.head([slow, fast])
        return logits
