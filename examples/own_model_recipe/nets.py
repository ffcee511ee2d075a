"""A network of one's own, which `recipe.yaml` names as `nets:Drift`."""

from torch import nn


class Drift(nn.Module):
    """Takes clips `(B, C, T, H, W)` and returns logits `(B, classes)`."""

    needs = {"min_frames": 2, "min_size": 8}  # noqa: RUF012
    """What every clip shape of a plan must have; checked before anything runs."""

    def __init__(self, classes, width=16):
        """The number of classes comes from the data, `width` from the recipe's `model.options`."""
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv3d(3, width, 3, stride=(1, 2, 2), padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU()),
            *(nn.Conv3d(width, width, 3, padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU()),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, clips):
        """Pool whatever shape comes, then classify."""
        return self.head(self.body(clips).mean((2, 3, 4)))
