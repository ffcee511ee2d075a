"""A small residual network, and timm's models."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from vcycle.errors import RecipeError, did_you_mean
from vcycle.nn import any_shape
from vcycle.utils.extras import require

__all__ = ["TinyResNet", "timm_model"]


class TinyResNet(nn.Module):
    """A pre-activation residual network (He et al. 2016b) for small images.

    Args:
        classes: outputs.
        widths: channels of each stage.
        blocks: residual blocks per stage.
        dropout: before the classifier.
    """

    def __init__(
        self, classes: int, *, widths: Sequence[int] = (16, 32, 64, 128), blocks: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, stride=2, padding=1, bias=False)
        layers: list[nn.Module] = []
        before = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(_Block(before, width, stride=2 if stage and not block else 1))
                before = width
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(before)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, classes)`` of images ``(B, 3, H, W)``."""
        x = nn.functional.relu(self.norm(self.layers(self.stem(images))))
        logits: Tensor = self.head(self.dropout(x.mean((2, 3))))
        return logits


class _Block(nn.Module):
    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(before), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        plain = stride == 1 and before == width
        self.shortcut = nn.Identity() if plain else nn.Conv2d(before, width, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = nn.functional.relu(self.norm1(x))
        inner = self.conv2(nn.functional.relu(self.norm2(self.conv1(active))))
        return inner + self.shortcut(x if isinstance(self.shortcut, nn.Identity) else active)  # type: ignore[no-any-return]


def timm_model(classes: int, *, name: str, pretrained: bool = False, **options: Any) -> nn.Module:
    """Build one of timm's models; a transformer takes images of other sizes and drops tokens, where it can.

    Args:
        classes: outputs.
        name: timm's name, such as ``resnet18`` or ``vit_tiny_patch16_224.augreg_in21k``.
        pretrained: whether timm downloads its weights.
        options: arguments of timm's model.

    Raises:
        NotInstalledError: timm is not installed.
        RecipeError: it does not know the name.
    """
    timm = require("timm", f"model 'timm/{name}' needs")
    if not timm.is_model(name):
        raise RecipeError(f"model 'timm/{name}' is unknown to timm{did_you_mean(name, timm.list_models())}")
    options = {"pretrained": pretrained, "num_classes": classes, **options}
    try:
        model: nn.Module = timm.create_model(name, **{"dynamic_img_size": True, **options})
    except TypeError:  # a model without that argument
        model = timm.create_model(name, **options)
    except RuntimeError as error:
        if "pretrained" not in str(error):
            raise
        raise RecipeError(f"model 'timm/{name}': {error}") from error  # it has no weights of this tag
    return any_shape(model, strict=False)
