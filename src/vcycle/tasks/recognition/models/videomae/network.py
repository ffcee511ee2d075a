"""transformers' VideoMAE as a network of clips: any shape, stochastic depth, and a classifier of any size."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vcycle.nn import any_shape
from vcycle.nn.drop_path import DropPath
from vcycle.tasks.recognition.models.videomae import PATCH, TUBELET
from vcycle.utils.extras import require

__all__ = ["VideoMAE"]


class VideoMAE(nn.Module):
    """A ViT over tubelets of 2 frames of 16×16 pixels, for clips of any shape (Tong et al. 2022).

    The parameters have the names of transformers' `VideoMAEForVideoClassification`, whose logits these are. Positions
    are those of the clips that the weights were trained on, resampled for others.

    Args:
        classes: outputs.
        width: channels of a token.
        depth: transformer blocks.
        heads: attention heads.
        pooling: ``mean`` of all tokens, or the ``first`` one.
        dropout: before the classifier.
        drop_path: rate of stochastic depth of the last block; it grows linearly from 0 at the first.
        trained_clip: frames and side of the clips that the weights were trained on.

    Raises:
        NotInstalledError: transformers is not installed.
    """

    def __init__(
        self,
        classes: int,
        *,
        width: int,
        depth: int,
        heads: int,
        pooling: str = "mean",
        dropout: float = 0.0,
        drop_path: float = 0.0,
        trained_clip: tuple[int, int] = (16, 224),
    ) -> None:
        super().__init__()
        library = require("transformers", "VideoMAE needs")
        config = library.VideoMAEConfig(
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            num_labels=classes,
            use_mean_pooling=pooling == "mean",
            num_frames=TUBELET,
            image_size=PATCH,
        )
        model = library.VideoMAEForVideoClassification(config)
        _set_positions(model.videomae, *trained_clip)
        self.heads = heads
        self.trained_clip = trained_clip
        self.videomae = any_shape(model.videomae)
        self.fc_norm: nn.Module | None = model.fc_norm
        self.dropout = nn.Dropout(dropout)
        self.classifier = model.classifier
        for rate, layer in zip(torch.linspace(0, drop_path, depth, device="cpu").tolist(), self._layers(), strict=True):
            # transformers has no stochastic depth; these two dropouts, of rate 0, end the branches of a block.
            layer.attention.output.dropout = DropPath(rate)
            layer.output.dropout = DropPath(rate)

    def forward(self, clips: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of clips ``(B, 3, T, H, W)``."""
        tokens: Tensor = self.videomae(clips.transpose(1, 2)).last_hidden_state
        pooled = tokens[:, 0] if self.fc_norm is None else self.fc_norm(tokens.mean(1))
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits

    def _layers(self) -> Any:
        return self.videomae.get_submodule("encoder.layer")


def _set_positions(model: Any, frames: int, side: int) -> None:
    """Give a model of a single position those of clips of a shape.

    transformers computes their table number by number, which takes seconds; this one is the same bit by bit.
    """
    config, embeddings = model.config, model.embeddings
    width, patches = config.hidden_size, embeddings.patch_embeddings
    config.num_frames, config.image_size, patches.image_size = frames, side, (side, side)
    embeddings.num_patches = patches.num_patches = (frames // TUBELET) * (side // PATCH) ** 2
    angles = np.arange(patches.num_patches)[:, None] / np.power(10000, 2 * (np.arange(width) // 2) / width)
    angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    embeddings.position_embeddings = torch.from_numpy(angles).float()[None]
