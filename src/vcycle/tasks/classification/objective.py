"""Defines recognition's objective: input normalisation and the loss.

Clips arrive as uint8 `(B, T, H, W, C)`; models take float `(B, C, T, H, W)`. The memory format stays channels-last, so
the permutation copies nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from vcycle.errors import DataError, VcycleError
from vcycle.plan import Shape

__all__ = ["Recognition", "scale_dropout"]


@dataclass(frozen=True, kw_only=True)
class Recognition:
    """Classification of clips: one class per clip or, with `multi_label`, any number of classes."""

    classes: int
    """Number of classes."""
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    """Mean per channel, for values in 0..1."""
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)
    """Standard deviation per channel."""
    label_smoothing: float = 0.0
    """Label smoothing of the training loss, for single-label clips."""
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the training loss, for single-label clips; by default 1."""
    multi_label: bool = False
    """Whether a clip may have any number of labels."""
    mixup: float | None = None
    """Mixup in training: α of the weight's distribution Beta(α, α)."""
    cutmix: float | None = None
    """CutMix in training: α of the weight's distribution Beta(α, α)."""
    strength: Callable[[int], float] | None = None
    """The share of mixup, CutMix, dropout and stochastic depth, 0 to 1, by the side of the clips; by default 1."""

    def __post_init__(self) -> None:
        if self.classes < 2 and not self.multi_label:
            raise DataError(f"found {self.classes} class; classification needs at least 2")

    def check(self, labels: Tensor) -> None:
        """Refuse invalid labels. Call it while they are on the CPU: it reads their values.

        Args:
            labels: The labels of a batch.

        Raises:
            DataError: if their shape does not fit the task, or they are out of range.
        """
        if labels.ndim != 1 + self.multi_label:
            kinds = ("one label per clip, int64 (B,)", f"float (B, {self.classes}), any number of labels per clip")
            wanted, other = kinds[self.multi_label], "one label" if self.multi_label else "any number of labels"
            raise DataError(
                f"labels of shape {tuple(labels.shape)}: the dataset has {other} per clip, but the task "
                f"(multi_label={self.multi_label}) needs {wanted}"
            )
        if self.multi_label:
            if labels.shape[1] != self.classes:
                raise DataError(f"labels of {labels.shape[1]} classes; the model has {self.classes}")
        elif len(labels) and not 0 <= (low := int(labels.min())) <= (high := int(labels.max())) < self.classes:
            raise DataError(f"label {low if low < 0 else high} is out of range; accepted: 0 to {self.classes - 1}")

    def noise(self, batch: int, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        """A dummy batch of clips and labels, for warm-up and profiling."""
        clips = torch.randint(0, 256, (batch, *shape, 3), dtype=torch.uint8, device=device)
        labels = torch.randint(0, self.classes, (batch,), device=device)
        return clips, functional.one_hot(labels, self.classes).float() if self.multi_label else labels

    def inputs(self, clips: Tensor) -> Tensor:
        """Normalised float `(B, C, T, H, W)` from uint8 `(B, T, H, W, C)`, on the same device."""
        mean, scale = _colors(tuple(self.mean), tuple(self.std), clips.device)
        return clips.float().sub_(mean).mul_(scale).permute(0, 4, 1, 2, 3)

    def predict(self, model: nn.Module, clips: Tensor) -> Tensor:
        """The model's logits, float `(B, classes)`, for clips, uint8 `(B, T, H, W, C)`."""
        return self._logits(model, self.inputs(clips))

    @property
    def mixes(self) -> bool:
        """Whether training mixes clips with others in their block."""
        return self.mixup is not None or self.cutmix is not None

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor, *, block: int | None = None) -> Tensor:
        """The training loss, the mean over the clips of a batch.

        Class weights multiply the cross-entropy term of each target class: with hard labels, the loss of each clip.
        With label smoothing or mixup, a clip has several target classes, each with its own weight. The mean is over the
        number of clips, not over their weights, so that it does not depend on how a batch is split into micro-batches
        and over ranks.

        Args:
            model: Maps `(B, C, T, H, W)` to logits `(B, classes)`.
            clips: uint8 `(B, T, H, W, C)`.
            labels: int64 `(B,)`; float `(B, classes)` of ones and zeros with `multi_label`.
            block: Number of clips within which Mixup and CutMix mix; by default the whole batch.
        """
        x = self.inputs(clips)
        share = 1.0 if self.strength is None else self.strength(min(clips.shape[2:4]))
        if self.strength is not None:
            scale_dropout(model, share)
        if self.mixes and (mixing := self._mixing(share)) is not None:
            x, labels = mixing(x, labels, block or len(x))
        logits = self._logits(model, x)
        if self.multi_label:
            return functional.binary_cross_entropy_with_logits(logits, labels)
        if self.class_weights is None:
            return functional.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
        weight = _weights(self.class_weights, logits.device)
        each = functional.cross_entropy(
            logits, labels, weight=weight, label_smoothing=self.label_smoothing, reduction="none"
        )
        return each.mean()

    def _logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """The model's logits.

        Raises:
            VcycleError: if the model returns something else.
        """
        logits: Tensor = model(x)
        wanted = (len(x), self.classes)
        if not isinstance(logits, Tensor) or logits.shape != wanted:
            found = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise VcycleError(f"the model returns {found} for {len(x)} clips; accepted: logits of shape {wanted}")
        return logits.float()

    def _mixing(self, share: float) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]] | None:
        """Mixup and CutMix at a share of their strength; None where it is too small to draw from."""
        if share not in self._mixings:
            from vcycle.tasks.classification.augment import Mixing

            alphas = {"mixup": self.mixup, "cutmix": self.cutmix}
            scaled = {name: share * alpha for name, alpha in alphas.items() if alpha and share * alpha >= _LEAST_ALPHA}
            self._mixings[share] = Mixing(classes=self.classes, **scaled) if scaled else None
        return self._mixings[share]

    @cached_property
    def _mixings(self) -> dict[float, Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]] | None]:
        return {}


_LEAST_ALPHA = 1e-3
"""Below, 32-bit draws of Beta(α, α) are always 0 or 1: nothing is mixed."""
_DROP_PATHS = ("DropPath", "StochasticDepth")
"""How the names of classes of stochastic depth end: in torchvision, timm, pytorchvideo, transformers and ours."""
_RATES = ("p", "drop_prob")
"""The names of their rate."""


def scale_dropout(model: nn.Module, share: float) -> None:
    """Set the rates of a model's dropout and stochastic depth to a share of their own, in place."""
    for module in model.modules():
        name = _rate_name(module)
        if name is not None:
            full = module.__dict__.setdefault("_full_rate", getattr(module, name))
            setattr(module, name, share * full)


def _rate_name(module: nn.Module) -> str | None:
    """The attribute of a module that is a rate of dropout or stochastic depth; None if it has none."""
    if isinstance(module, _DropoutNd):
        return "p"
    if isinstance(module, nn.MultiheadAttention):
        return "dropout"
    if not type(module).__name__.endswith(_DROP_PATHS):
        return None
    return next((name for name in _RATES if isinstance(getattr(module, name, None), float | int)), None)


@cache
def _weights(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Class weights on a device; copied only once, as in `_colors`."""
    with torch.inference_mode(False):
        return torch.tensor(weights, dtype=torch.float32, device=device)


@cache
def _colors(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The mean and the reciprocal of the standard deviation, for values in 0..255; copied to a device only once.

    The copy synchronises with the device, which must not happen at every step.
    """
    with torch.inference_mode(False):  # the cached tensors must also work in training
        return torch.tensor(mean, device=device).mul_(255), torch.tensor(std, device=device).mul_(255).reciprocal_()
