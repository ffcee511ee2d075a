"""Two small video transformers, made of the classes that pretrained ones have: ViViT's and Swin3D's.

Both take clips ``(B, C, T, H, W)`` and, through :func:`vcycle.any_shape`, the shapes of a plan. Linear layers start
with a standard deviation of 0.1: the 0.02 of the published networks is meant for widths of 768, and narrow ones learn
nothing with it in the few updates of a small set.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torchvision.models.video.swin_transformer import SwinTransformer3d
from transformers import VivitConfig, VivitForVideoClassification

import vcycle

START = 0.1


class Plain(nn.Module):
    """A ViT with global attention: transformers' ViViT, patches of 2×8×8, a class token, learned positions."""

    needs: ClassVar[Mapping[str, int]] = {"frames_multiple": 2, "size_multiple": 8}

    def __init__(
        self, classes: int, frames: int = 16, size: int = 32, width: int = 64, layers: int = 4, heads: int = 4
    ) -> None:
        super().__init__()
        config = VivitConfig(
            image_size=size,
            num_frames=frames,
            tubelet_size=[2, 8, 8],
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            num_labels=classes,
            initializer_range=START,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        vit = VivitForVideoClassification(config)
        nn.init.trunc_normal_(vit.vivit.embeddings.position_embeddings, std=0.02)
        self.vit = vcycle.any_shape(vit)

    def forward(self, clips: Tensor) -> Tensor:
        """Logits ``(B, classes)``."""
        logits: Tensor = self.vit(clips.transpose(1, 2)).logits
        return logits


class Hierarchical(nn.Module):
    """A hierarchy with attention in shifted windows: torchvision's Swin3D, patches of 2×4×4, three stages."""

    needs: ClassVar[Mapping[str, int]] = {"frames_multiple": 2, "size_multiple": 4}

    def __init__(self, classes: int, width: int = 24, depths: tuple[int, ...] = (1, 1, 2)) -> None:
        super().__init__()
        swin = SwinTransformer3d(
            patch_size=[2, 4, 4],
            embed_dim=width,
            depths=list(depths),
            num_heads=[2 * 2**stage for stage in range(len(depths))],
            window_size=[8, 4, 4],
            stochastic_depth_prob=0.0,
            num_classes=classes,
        )
        for layer in swin.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=START, a=-2 * START, b=2 * START)
        self.swin = vcycle.any_shape(swin)

    def forward(self, clips: Tensor) -> Tensor:
        """Logits ``(B, classes)``."""
        logits: Tensor = self.swin(clips)
        return logits
