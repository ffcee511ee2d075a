"""Computes a model's class scores of videos, combined over the views of each video."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vcycle.data import Batch, Replacement, Views
from vcycle.errors import DataError
from vcycle.nn.precision import at_precision
from vcycle.tasks.recognition.objective import Recognition
from vcycle.train.calling import calling

__all__ = ["Scored", "Scores", "Scoring", "score_each"]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How a video's scores are computed."""

    scores: Literal["auto", "softmax", "sigmoid"] = "auto"
    """The activation on a view's logits: `auto` is `sigmoid` for multi-label videos, else `softmax`."""
    combine: Literal["mean", "max"] = "mean"
    """How the scores of a video's views are combined: the mean, or the maximum per class."""
    precision: str = "fp32"
    """The precision of the forward pass: `fp32`, `bf16` or `fp16`."""

    def words(self, task: Recognition, views: Views) -> str:
        """Describe the evaluation protocol in words."""
        kind = self.kind(task)
        words = [str(views)]
        if len(views) > 1:
            words.append(f"{kind} {self.combine}")
        elif kind != "softmax":
            words.append(kind)
        return ", ".join([*words, self.precision] if self.precision != "fp32" else words)

    def kind(self, task: Recognition) -> Literal["softmax", "sigmoid"]:
        """The activation: `softmax` or `sigmoid`."""
        if self.scores != "auto":
            return self.scores
        return "sigmoid" if task.multi_label else "softmax"


class Scored(NamedTuple):
    """The scores of a video over all of its views."""

    video: int
    """Its index in the dataset."""
    scores: Tensor
    """float64 `(classes,)`, in 0..1, on the CPU."""
    label: Tensor
    """int64 `()`, or float32 `(classes,)` of ones and zeros."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of many videos, in the dataset's order, without duplicates."""

    videos: Tensor
    """int64 `(N,)`: indices in the dataset."""
    scores: Tensor
    """float64 `(N, classes)`, in 0..1."""
    labels: Tensor
    """int64 `(N,)`; for multi-label videos, float32 `(N, classes)` of ones and zeros."""
    unreadable: tuple[Replacement, ...] = ()
    """Videos with an unreadable view, without duplicates."""

    @classmethod
    def of(cls, found: Iterable["Scored | Replacement"]) -> "Scores":
        """Merge and sort the results of `score_each`, such as those of several ranks.

        Args:
            found: The results.

        Raises:
            DataError: if no video could be read.
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
    """Score videos one by one, each as soon as all of its views are scored.

    Args:
        task: The model's objective.
        model: The model; its training or evaluation mode is restored.
        batches: All views of some videos, from `vcycle.data.evaluation_loader`.
        views: The views of each video.
        device: The device of the model.
        scoring: How a video's scores are computed.

    Yields:
        The video's scores or, if a view cannot be read, the reason.

    Raises:
        DataError: if views of a video are missing, or the model's scores are not finite.
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
                # Double precision, so that no score rounds to 0, whose logarithm is infinite.
                where = f"in evaluation, on {len(batch.clips)} clips of {views.shape}"
                with at_precision(scoring.precision, device), calling(model, where):
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
    """Combine the views of a video; a video with an unreadable view has no scores."""
    if seen.bad is not None:
        return seen.bad
    scores = torch.cat(seen.scores)
    if not bool(scores.isfinite().all()):
        raise DataError("the model's scores are not finite: its weights are not finite, or too large")
    return Scored(video, scores.mean(0) if combine == "mean" else scores.amax(0), seen.label)
