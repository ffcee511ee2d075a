"""SlowFast: a wide pathway at few frames beside a thin one at all frames (Feichtenhofer et al. 2019)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from vcycle.errors import PlanError, RecipeError
from vcycle.tasks.recognition.models.blocks import ConvNorm, initialise
from vcycle.tasks.recognition.models.head import Head
from vcycle.tasks.recognition.models.stages import Extents, block_named, check_lengths, make_stage, make_stem

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
        stem_width: channels of the slow stem.
        widths: inner channels of each slow stage (outside, a bottleneck has four times as many).
        blocks: residual blocks in each stage.
        block: ``basic`` or ``bottleneck``.
        alpha: frames of the fast pathway per frame of the slow one.
        beta_inverse: channels of the slow pathway per channel of the fast one.
        fusion_kernel: extent in time of the fusing convolutions.
        fusion_ratio: channels that a fusion gives to the slow pathway, per channel of the fast one.
        slow_kernels: extent in time of each slow stage's convolutions; a list for a stage whose blocks differ, which
            they go through over again.
        fast_kernels: the same of the fast pathway.
        stem_size: extent in space of the stems' convolutions.
        stem_pool: halve height and width once more after the stems.
        dropout: before the classifier.
        zero_gamma: start each residual block as the identity.
        channels_in: channels of the clip.

    Raises:
        RecipeError: an unknown ``block``, per-stage lists of different lengths, or widths that ``beta_inverse``
            does not divide.
    """

    def __init__(
        self,
        classes: int,
        *,
        stem_width: int = 64,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: Sequence[int] = (3, 4, 6, 3),
        block: str = "bottleneck",
        alpha: int = 4,
        beta_inverse: int = 8,
        fusion_kernel: int = 7,
        fusion_ratio: int = 2,
        slow_kernels: Sequence[Extents] = (1, 1, 3, 3),
        fast_kernels: Sequence[Extents] = (3, 3, 3, 3),
        stem_size: int = 7,
        stem_pool: bool = True,
        dropout: float = 0.5,
        zero_gamma: bool = True,
        channels_in: int = 3,
    ) -> None:
        super().__init__()
        check_lengths(widths=widths, blocks=blocks, slow_kernels=slow_kernels, fast_kernels=fast_kernels)
        for width in (stem_width, *widths):
            if width % beta_inverse:
                raise RecipeError(f"width {width} is not a multiple of beta_inverse {beta_inverse}")
        self.alpha, self.stem_pool = alpha, stem_pool
        expansion = block_named(block).expansion
        slow_channels = [stem_width, *(width * expansion for width in widths)]
        fast_channels = [channels // beta_inverse for channels in slow_channels]
        self.slow_stem = make_stem(channels_in, slow_channels[0], (1, stem_size, stem_size), pool=stem_pool)
        self.fast_stem = make_stem(channels_in, fast_channels[0], (5, stem_size, stem_size), pool=stem_pool)
        self.fusions = nn.ModuleList(
            ConvNorm(fast, fast * fusion_ratio, (fusion_kernel, 1, 1), (alpha, 1, 1)) for fast in fast_channels[:-1]
        )
        self.slow_stages, self.fast_stages = nn.ModuleList(), nn.ModuleList()
        ends = zip(pairwise(slow_channels), pairwise(fast_channels), strict=True)
        for index, ((slow_in, _), (fast_in, _)) in enumerate(ends):
            width, depth, stride = widths[index], blocks[index], (1, 1, 1) if index == 0 else (1, 2, 2)
            slow_in += fast_in * fusion_ratio
            self.slow_stages.append(make_stage(block, slow_in, width, depth, slow_kernels[index], stride))
            self.fast_stages.append(
                make_stage(block, fast_in, width // beta_inverse, depth, fast_kernels[index], stride)
            )
        self.head = Head(slow_channels[-1] + fast_channels[-1], classes, dropout, stride=2 ** (len(widths) + stem_pool))
        initialise(self, zero_gamma=zero_gamma)

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
