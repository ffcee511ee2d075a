"""Mixup and CutMix with torchvision's transforms, consistent over the frames of a clip.

All random draws come from torch's global generator, which the training loop seeds per step. So a resume does not change
them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vcycle.utils.extras import require

tv_tensors = require("torchvision.tv_tensors", "augment needs")
v2 = require("torchvision.transforms.v2", "augment needs")

__all__ = ["Mixing"]


class Mixing:
    """Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of the clips of a batch, on its device.

    Each clip is mixed with the previous one in its block, the first with the last. Samples are already in random order,
    and ranks and micro-batches never split a block. Each step draws one mixing ratio for all its clips; with both
    enabled it also draws which of the two to use.
    """

    def __init__(self, *, classes: int, mixup: float | None = None, cutmix: float | None = None) -> None:
        """Configure mixup, CutMix or both.

        Args:
            classes: Number of classes.
            mixup: α of the Beta(α, α) distribution of the mixup ratio; None disables mixup.
            cutmix: The same for CutMix.
        """
        ways: list[Any] = []
        if mixup is not None:
            ways.append(v2.MixUp(alpha=mixup, num_classes=classes))
        if cutmix is not None:
            ways.append(v2.CutMix(alpha=cutmix, num_classes=classes))
        self._mix: Callable[..., Any] = ways[0] if len(ways) == 1 else v2.RandomChoice(ways)

    def __call__(self, clips: Tensor, labels: Tensor, block: int) -> tuple[Tensor, Tensor]:
        """Return mixed clips and labels.

        Args:
            clips: float ``(B, C, T, H, W)``.
            labels: int64 ``(B,)``, or float ``(B, classes)`` for multi-label videos.
            block: Clips per block; the last block may have fewer.

        Returns:
            Clips of the same shape in the ``channels_last_3d`` memory format, and labels, float ``(B, classes)``.
        """
        drawn = torch.get_rng_state()
        blocks = []
        for some, of_these in zip(torch.split(clips, block), torch.split(labels, block), strict=True):
            torch.set_rng_state(drawn)  # every block draws the same
            frames, mixed_labels = self._mix(some.transpose(1, 2).as_subclass(tv_tensors.Video), of_these)
            blocks.append((frames.as_subclass(Tensor), mixed_labels))
        mixed = torch.cat([frames for frames, _ in blocks]).transpose(1, 2)
        return mixed.contiguous(memory_format=torch.channels_last_3d), torch.cat([labels for _, labels in blocks])
