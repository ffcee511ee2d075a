"""What a model says of videos: a score for each class, combined over the views of a video."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vcycle.data import Batch, Replacement, Views
from vcycle.errors import DataError
from vcycle.nn.precision import at_precision
from vcycle.tasks.recognition.objective import Recognition

__all__ = ["Scored", "Scores", "Scoring", "score_each"]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a video's scores come about."""

    scores: Literal["auto", "softmax", "sigmoid"] = "auto"
    """What makes scores of a view's logits: `auto` is `sigmoid` where a video may have several labels, else `softmax`.
    """
    combine: Literal["mean", "max"] = "mean"
    """What the views of a video give together: the mean of their scores, or the highest for each class."""
    precision: str = "fp32"
    """What the model computes in: `fp32`, `bf16` or `fp16`."""

    def words(self, task: Recognition, views: Views) -> str:
        """The protocol of an evaluation in words."""
        kind = self.kind(task)
        words = [str(views)]
        if len(views) > 1:
            words.append(f"{kind} {self.combine}")
        elif kind != "softmax":
            words.append(kind)
        return ", ".join([*words, self.precision] if self.precision != "fp32" else words)

    def kind(self, task: Recognition) -> Literal["softmax", "sigmoid"]:
        """`softmax` or `sigmoid`."""
        if self.scores != "auto":
            return self.scores
        return "sigmoid" if task.multi_label else "softmax"


class Scored(NamedTuple):
    """A video whose views have all been looked at."""

    video: int
    """Its index in the dataset."""
    scores: Tensor
    """float64 `(classes,)`, in 0..1, on the CPU."""
    label: Tensor
    """int64 `()`, or float32 `(classes,)` of ones and zeros."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of many videos, in the dataset's order, each once."""

    videos: Tensor
    """int64 `(N,)`: indices in the dataset."""
    scores: Tensor
    """float64 `(N, classes)`, in 0..1."""
    labels: Tensor
    """int64 `(N,)`; float32 `(N, classes)` of ones and zeros where a video may have several labels."""
    unreadable: tuple[Replacement, ...] = ()
    """Videos that could not be read, in any of their views; each once."""

    @classmethod
    def of(cls, found: Iterable["Scored | Replacement"]) -> "Scores":
        """Put videos in order, such as those of several ranks.

        Args:
            found: What `score_each` gave.

        Raises:
            DataError: if none could be read.
        """
        found = list(found)
        rows = sorted((row for row in found if isinstance(row, Scored)), key=lambda row: row.video)
        unreadable = sorted((bad for bad in found if isinstance(bad, Replacement)), key=lambda bad: bad.video)
        if not rows:
            raise DataError(f"none of the {len(unreadable)} videos of the evaluation split can be read")
        return cls(
            videos=torch.tensor([row.video for row in rows]),
            scores=torch.stack([row.scores for row in rows]),
            labels=torch.stack([row.label for row in rows]),
            unreadable=tuple(unreadable),
        )


@dataclass
class _Seen:
    """The views of one video so far."""

    views: int = 0
    scores: list[Tensor] = field(default_factory=list)
    label: Tensor = field(default_factory=lambda: torch.empty(0))
    bad: Replacement | None = None


@torch.inference_mode()
def score_each(
    task: Recognition,
    model: nn.Module,
    batches: Iterable[Batch],
    views: Views,
    *,
    device: torch.device,
    scoring: Scoring | None = None,
) -> Iterator[Scored | Replacement]:
    """Score videos one after another, each as soon as its views have been looked at.

    Args:
        task: What the model was trained for.
        model: The model; left in the mode in which it came.
        batches: All views of some videos, as `vcycle.data.evaluation_loader` gives them.
        views: What is taken of each video.
        device: Where the model is.
        scoring: How a video's scores come about.

    Yields:
        The video's scores or, where a view cannot be read, why.

    Raises:
        DataError: if some views of a video are not there, or the model's scores of them are not numbers.
    """
    scoring = scoring or Scoring()
    kind = scoring.kind(task)
    pending: dict[int, _Seen] = {}
    training = model.training
    model.eval()
    try:
        for batch in batches:
            for bad in batch.replaced:
                seen = pending.setdefault(bad.video, _Seen())
                seen.views += views.crops
                seen.bad = seen.bad or bad
            if len(batch.labels):
                # In double precision no score is rounded to 0, which has no logarithm.
                with at_precision(scoring.precision, device):
                    logits = task.predict(model, batch.clips.to(device)).double()
                scores = (logits.softmax(1) if kind == "softmax" else logits.sigmoid()).cpu()
                for video in torch.unique(batch.indices).tolist():
                    rows = batch.indices == video
                    seen = pending.setdefault(video, _Seen())
                    seen.views += int(rows.sum())
                    seen.scores.append(scores[rows])
                    seen.label = batch.labels[rows][0].clone()
            for video in sorted(video for video, seen in pending.items() if seen.views >= len(views)):
                yield _whole(video, pending.pop(video), scoring.combine)
        if pending:
            raise DataError(f"{len(pending)} videos have fewer than {len(views)} views in these batches")
    finally:
        model.train(training)


def _whole(video: int, seen: _Seen, combine: str) -> Scored | Replacement:
    """What all views of a video give together; those of a video of which one cannot be read give nothing."""
    if seen.bad is not None:
        return seen.bad
    scores = torch.cat(seen.scores)
    if not bool(scores.isfinite().all()):
        raise DataError("the model's scores are not numbers: its weights are not, or are too large")
    return Scored(video, scores.mean(0) if combine == "mean" else scores.amax(0), seen.label)
