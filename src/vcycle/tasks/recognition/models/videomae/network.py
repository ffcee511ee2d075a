"""transformers' VideoMAE as a network of clips: any shape, stochastic depth, and a classifier of any size."""

from typing import Any

import torch
from torch import Tensor, nn

from vcycle.nn import any_shape
from vcycle.nn.drop_path import DropPath
from vcycle.utils.extras import require

__all__ = ["VideoMAE"]


class VideoMAE(nn.Module):
    """A ViT over tubelets of 2 frames of 16×16 pixels, for clips of any shape (Tong et al. 2022).

    The parameters have the names of transformers' `VideoMAEForVideoClassification`, whose logits these are. Positions
    are those of 16 frames of 224 pixels, resampled for other clips.

    Args:
        classes: outputs.
        width: channels of a token.
        depth: transformer blocks.
        heads: attention heads.
        pooling: ``mean`` of all tokens, or the ``first`` one.
        dropout: before the classifier.
        drop_path: rate of stochastic depth of the last block; it grows linearly from 0 at the first.

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
        )
        model = library.VideoMAEForVideoClassification(config)
        self.heads = heads
        self.trained_clip = (config.num_frames, config.image_size)
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
