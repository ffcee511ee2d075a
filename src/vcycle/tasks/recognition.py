"""Recognition: cross-entropy, top-1 and top-5, evaluation at the full grid (Wu et al. 2020, section 4).

Clips arrive as uint8 `(B, T, H, W, C)`; models take float `(B, C, T, H, W)`. Channels come last in memory
throughout: moving from one to the other copies nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics.classification import MulticlassAccuracy

from vcycle.data import Batch
from vcycle.errors import DataError
from vcycle.plan import Shape

__all__ = ["Evaluation", "Recognition"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation found, with its protocol."""

    top1: float
    """Share of samples whose class came first, in 0..1."""
    top5: float
    """Share of samples whose class was among the first five, in 0..1."""
    loss: float
    """Mean cross-entropy, without label smoothing."""
    samples: int
    """Videos counted, each once."""
    unreadable: int
    """Videos that could not be read, and do not count."""
    protocol: str
    """How clips were taken."""


@dataclass(frozen=True, kw_only=True)
class Recognition:
    """The task: one label per clip."""

    classes: int
    """Number of classes."""
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    """Mean per channel, of values in 0..1."""
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)
    """Standard deviation per channel."""
    label_smoothing: float = 0.0
    """Label smoothing of the training loss."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise DataError(f"the videos are of {self.classes} class: at least 2 are needed to tell apart")

    def inputs(self, clips: Tensor) -> Tensor:
        """Normalised float `(B, C, T, H, W)` from uint8 `(B, T, H, W, C)`, on the same device."""
        mean = torch.tensor(self.mean, device=clips.device).mul_(255)
        scale = torch.tensor(self.std, device=clips.device).mul_(255).reciprocal_()
        return clips.float().sub_(mean).mul_(scale).permute(0, 4, 1, 2, 3)

    def loss(self, model: nn.Module, clips: Tensor, labels: Tensor) -> Tensor:
        """The training loss, the mean over the clips of a batch.

        Args:
            model: Maps `(B, C, T, H, W)` to logits `(B, classes)`.
            clips: uint8 `(B, T, H, W, C)`.
            labels: int64 `(B,)`.
        """
        logits = model(self.inputs(clips))
        return functional.cross_entropy(logits.float(), labels, label_smoothing=self.label_smoothing)

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, batches: Iterable[Batch], shape: Shape, *, device: torch.device) -> Evaluation:
        """Accuracy over the center clips that a loader gives, each video counted once.

        Args:
            model: The model; left in the mode in which it came.
            batches: Center clips, as `vcycle.data.evaluation_loader` gives them.
            shape: Their shape.
            device: Where the model is.

        Raises:
            DataError: if no video can be read.
        """
        top1 = MulticlassAccuracy(self.classes, average="micro").to(device)
        top5 = MulticlassAccuracy(self.classes, average="micro", top_k=min(5, self.classes)).to(device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        count, unreadable = 0, 0
        training = model.training
        model.eval()
        for batch in batches:
            unreadable += len(batch.replaced)
            if not len(batch.labels):
                continue
            target = batch.labels.to(device)
            logits = model(self.inputs(batch.clips.to(device))).float()
            top1.update(logits, target)
            top5.update(logits, target)
            total += functional.cross_entropy(logits, target, reduction="sum")
            count += len(target)
        model.train(training)
        if not count:
            raise DataError(f"none of the {unreadable} videos of the evaluation split can be read")
        return Evaluation(
            top1=float(top1.compute()),
            top5=float(top5.compute()),
            loss=float(total) / count,
            samples=count,
            unreadable=unreadable,
            protocol=f"1 center clip, {shape}",
        )
