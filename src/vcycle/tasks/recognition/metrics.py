"""How good scores are: accuracy and mAP over videos, each counted once, with the protocol beside the number."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vcycle.tasks.recognition.scores import Scores

__all__ = ["ClassResult", "Evaluation", "class_results", "confusion", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation found, with its protocol."""

    top1: float
    """Share of samples whose class came first, in 0..1; where a sample may have several, any of them."""
    top5: float
    """Share of samples whose class was among the first five, in 0..1."""
    loss: float
    """Mean cross-entropy of the scores, without label smoothing; binary, and the mean over classes too, where a sample
    may have several."""
    samples: int
    """Videos counted, each once."""
    unreadable: int
    """Videos that could not be read, and do not count."""
    protocol: str
    """How clips were taken, and how their scores were combined."""
    map: float | None = None
    """Where a sample may have several classes: mean over classes of the average precision, in 0..1."""
    map_classes: int | None = None
    """The classes of that mean: those that some sample has."""

    @property
    def measure(self) -> str:
        """What the evaluation is about: `mAP` where a sample may have several classes, else `top-1`."""
        return "top-1" if self.map is None else "mAP"

    @property
    def value(self) -> float:
        """The number of that name, in 0..1."""
        return self.top1 if self.map is None else self.map

    @property
    def headline(self) -> str:
        """Both in words."""
        return f"{self.measure} {self.value:.1%}"

    @property
    def numbers(self) -> dict[str, float]:
        """All numbers that are worth a curve, by name."""
        found = {"top1": self.top1, "top5": self.top5, "loss": self.loss}
        return found if self.map is None else found | {"map": self.map}


@dataclass(frozen=True, kw_only=True)
class ClassResult:
    """How good the scores are for one class."""

    index: int
    """Which class."""
    videos: int
    """Videos of the class."""
    value: float | None
    """Share of them that were recognised, in 0..1; average precision where a video may have several classes. None
    without videos."""
    taken_for: int | None = None
    """The other class that most of them were taken for; None where there is none, or with several classes a video."""
    taken: int = 0
    """How many were."""


def evaluate(scores: Scores, protocol: str) -> Evaluation:
    """Accuracy, loss and, where a video may have several classes, mAP.

    Args:
        scores: Of the videos.
        protocol: How they came about.
    """
    multi_label = scores.labels.ndim > 1
    precision = _average_precision(scores) if multi_label else None
    counted = None if precision is None else precision[~precision.isnan()]
    return Evaluation(
        top1=_hits(scores, 1),
        top5=_hits(scores, 5),
        loss=_loss(scores),
        samples=len(scores.videos),
        unreadable=len(scores.unreadable),
        protocol=protocol,
        map=None if counted is None else float(counted.mean()) if len(counted) else 0.0,
        map_classes=None if counted is None else len(counted),
    )


def class_results(scores: Scores) -> list[ClassResult]:
    """How good the scores are for each class."""
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
    """How many videos of each class (row) were taken for each (column): int64 `(classes, classes)`."""
    classes = scores.scores.shape[1]
    pairs = scores.labels * classes + scores.scores.argmax(1)
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _hits(scores: Scores, first: int) -> float:
    """Share of the videos with a class of theirs among the first few."""
    top = scores.scores.topk(min(first, scores.scores.shape[1]), dim=1).indices
    multi_label = scores.labels.ndim > 1
    hits = scores.labels.gather(1, top) > 0 if multi_label else top == scores.labels[:, None]
    return float(hits.any(1).double().mean())


def _loss(scores: Scores) -> float:
    if scores.labels.ndim > 1:
        return float(functional.binary_cross_entropy(scores.scores, scores.labels.double()))
    own = scores.scores.gather(1, scores.labels[:, None])
    smallest = torch.finfo(torch.float64).tiny  # a score of 0 is not the end of the world
    return float(-own.clamp_min(smallest).log().mean())


def _average_precision(scores: Scores) -> Tensor:
    """Average precision of each class, `(classes,)`; NaN of those that no video has, for which there is none.

    The mean precision at each threshold, weighted by the videos of the class that it adds, without interpolation.
    """
    precision = torch.full((scores.labels.shape[1],), torch.nan, dtype=torch.float64)
    for known in scores.labels.any(0).nonzero().flatten().tolist():
        ranked, order = scores.scores[:, known].sort(descending=True)
        found = (scores.labels[order, known] > 0).cumsum(0).double()
        # Videos of equal scores are found together: a threshold lies between two scores.
        last = torch.cat([ranked[1:] != ranked[:-1], ranked.new_ones(1, dtype=torch.bool)]).nonzero().flatten()
        new = found[last].diff(prepend=found.new_zeros(1))
        precision[known] = (found[last] / (last + 1) * new).sum() / found[-1]
    return precision
