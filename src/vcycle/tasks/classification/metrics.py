"""Computes accuracy and mAP over videos. Each video counts once; results carry their protocol."""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import torch
from torch import Tensor
from torch.nn import functional

from vcycle.tasks.classification.scores import Scores

__all__ = ["ClassResult", "RecognitionMetrics", "class_results", "confusion", "evaluate", "share_interval"]


@dataclass(frozen=True, kw_only=True)
class RecognitionMetrics:
    """The result of an evaluation, with its protocol."""

    top1: float
    """Top-1 accuracy in 0..1; for multi-label videos, any of the labels counts."""
    top5: float
    """Top-5 accuracy in 0..1."""
    loss: float
    """Mean cross-entropy of the scores, without label smoothing; for multi-label videos, mean binary cross-entropy over
    videos and classes."""
    samples: int
    """Number of videos, each counted once."""
    unreadable: int
    """Number of unreadable videos, which do not count."""
    protocol: str
    """How clips were sampled and their scores combined."""
    map: float | None = None
    """For multi-label videos: mean average precision over classes, in 0..1."""
    map_classes: int | None = None
    """Number of classes in that mean: those with at least one video."""
    mean_class_accuracy: float | None = None
    """For single-label videos: mean over classes of the top-1 accuracy, in 0..1, of those with at least one video."""

    @property
    def measure(self) -> str:
        """The name of the main metric: `mAP` for multi-label videos, else `top-1`."""
        return "top-1" if self.map is None else "mAP"

    @property
    def value(self) -> float:
        """The value of the main metric, in 0..1."""
        return self.top1 if self.map is None else self.map

    @property
    def headline(self) -> str:
        """Name and value of the main metric."""
        return f"{self.measure} {self.value:.1%}"

    @property
    def numbers(self) -> dict[str, float]:
        """All metrics to plot over training, by name."""
        found = {"top1": self.top1, "top5": self.top5, "loss": self.loss}
        return found if self.map is None else found | {"map": self.map}


@dataclass(frozen=True, kw_only=True)
class ClassResult:
    """The result for one class."""

    index: int
    """Index of the class."""
    videos: int
    """Number of videos of the class."""
    value: float | None
    """Accuracy on them in 0..1; average precision for multi-label videos. None without videos."""
    taken_for: int | None = None
    """The class that they are most often confused with; None if there is none, or for multi-label videos."""
    taken: int = 0
    """Number of these confusions."""


def evaluate(scores: Scores, protocol: str) -> RecognitionMetrics:
    """Compute accuracy, loss and, for multi-label videos, mAP.

    Args:
        scores: The scores of the videos.
        protocol: The evaluation protocol in words.
    """
    multi_label = scores.labels.ndim > 1
    precision = _average_precision(scores) if multi_label else None
    counted = None if precision is None else precision[~precision.isnan()]
    return RecognitionMetrics(
        top1=_hits(scores, 1),
        top5=_hits(scores, 5),
        loss=_loss(scores),
        samples=len(scores.videos),
        unreadable=len(scores.unreadable),
        protocol=protocol,
        map=None if counted is None else float(counted.mean()) if len(counted) else 0.0,
        map_classes=None if counted is None else len(counted),
        mean_class_accuracy=None if multi_label else _mean_class(scores),
    )


def share_interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval of a share of independent items.

    Args:
        share: The share that was found, in 0..1.
        count: Number of items.

    Example:
        >>> low, high = share_interval(0.75, 8)
        >>> round(low, 3), round(high, 3)
        (0.409, 0.929)
    """
    z = NormalDist().inv_cdf(0.975)
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    half = z * sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def class_results(scores: Scores) -> list[ClassResult]:
    """Compute the result for each class."""
    if scores.labels.ndim > 1:
        videos = scores.labels.sum(0).long().tolist()
        values = _average_precision(scores).tolist()
        return [
            ClassResult(index=index, videos=count, value=value if count else None)
            for index, (count, value) in enumerate(zip(videos, values, strict=True))
        ]
    matrix = confusion(scores)
    results = []
    for index, row in enumerate(matrix):
        count, right = int(row.sum()), int(row[index])
        others = row.clone()
        others[index] = 0
        taken = int(others.max())
        results.append(
            ClassResult(
                index=index,
                videos=count,
                value=right / count if count else None,
                taken_for=int(others.argmax()) if taken else None,
                taken=taken,
            )
        )
    return results


def confusion(scores: Scores) -> Tensor:
    """The confusion matrix, int64 `(classes, classes)`: rows are true classes, columns are predictions."""
    classes = scores.scores.shape[1]
    pairs = scores.labels * classes + scores.scores.argmax(1)
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _hits(scores: Scores, first: int) -> float:
    """Top-k accuracy with k = `first`."""
    top = scores.scores.topk(min(first, scores.scores.shape[1]), dim=1).indices
    multi_label = scores.labels.ndim > 1
    hits = scores.labels.gather(1, top) > 0 if multi_label else top == scores.labels[:, None]
    return float(hits.any(1).double().mean())


def _mean_class(scores: Scores) -> float:
    """Mean over classes of the accuracy."""
    matrix = confusion(scores).double()
    videos = matrix.sum(1)
    return float((matrix.diagonal()[videos > 0] / videos[videos > 0]).mean())


def _loss(scores: Scores) -> float:
    if scores.labels.ndim > 1:
        return float(functional.binary_cross_entropy(scores.scores, scores.labels.double()))
    own = scores.scores.gather(1, scores.labels[:, None])
    smallest = torch.finfo(torch.float64).tiny  # avoid an infinite loss at a score of 0
    return float(-own.clamp_min(smallest).log().mean())


def _average_precision(scores: Scores) -> Tensor:
    """Average precision of each class, `(classes,)`; NaN for a class without videos.

    The mean of the precision at each threshold, weighted by the increase in recall, without interpolation.
    """
    precision = torch.full((scores.labels.shape[1],), torch.nan, dtype=torch.float64)
    for known in scores.labels.any(0).nonzero().flatten().tolist():
        ranked, order = scores.scores[:, known].sort(descending=True)
        found = (scores.labels[order, known] > 0).cumsum(0).double()
        # Videos with equal scores share a threshold.
        last = torch.cat([ranked[1:] != ranked[:-1], ranked.new_ones(1, dtype=torch.bool)]).nonzero().flatten()
        new = found[last].diff(prepend=found.new_zeros(1))
        precision[known] = (found[last] / (last + 1) * new).sum() / found[-1]
    return precision
