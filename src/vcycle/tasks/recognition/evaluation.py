"""Accuracy of a model over videos, each counted once, with the protocol beside the number."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torchmetrics.classification import MulticlassAccuracy

from vcycle.data import Batch
from vcycle.errors import DataError
from vcycle.plan import Shape
from vcycle.tasks.recognition.task import Recognition

__all__ = ["Evaluation", "evaluate"]


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


@torch.inference_mode()
def evaluate(
    task: Recognition, model: nn.Module, batches: Iterable[Batch], shape: Shape, *, device: torch.device
) -> Evaluation:
    """Accuracy over the center clips that a loader gives, each video counted once.

    Args:
        task: What the model was trained for.
        model: The model; left in the mode in which it came.
        batches: Center clips, as `vcycle.data.evaluation_loader` gives them.
        shape: Their shape.
        device: Where the model is.

    Raises:
        DataError: if no video can be read.
    """
    top1 = MulticlassAccuracy(task.classes, average="micro").to(device)
    top5 = MulticlassAccuracy(task.classes, average="micro", top_k=min(5, task.classes)).to(device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    count, unreadable = 0, 0
    training = model.training
    model.eval()
    for batch in batches:
        unreadable += len(batch.replaced)
        if not len(batch.labels):
            continue
        target = batch.labels.to(device)
        logits = model(task.inputs(batch.clips.to(device))).float()
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
