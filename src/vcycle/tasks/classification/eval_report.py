"""Builds the rows of an evaluation report: one per class and one per video."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcycle.data import VideoDataset
    from vcycle.tasks.classification.scores import Scores

__all__ = ["class_rows", "top_classes", "video_rows"]

_TOP = 5
"""Number of classes to report per video."""


def class_rows(scores: "Scores", classes: tuple[str, ...], item: str = "video") -> list[dict[str, Any]]:
    """One row per class: number of items, accuracy, and the class most often confused with it.

    For multi-label videos, the average precision replaces accuracy and confusion.
    """
    from vcycle.tasks.classification.metrics import class_results

    measure = "accuracy" if scores.labels.ndim == 1 else "average_precision"
    rows: list[dict[str, Any]] = []
    for found in class_results(scores):
        row: dict[str, Any] = {"class": classes[found.index], f"{item}s": found.videos, measure: found.value}
        if found.taken_for is not None:
            row["taken_for"] = {"class": classes[found.taken_for], f"{item}s": found.taken}
        rows.append(row)
    return rows


def top_classes(scores: Any, classes: tuple[str, ...], top: int = _TOP) -> dict[str, float]:
    """The classes with the highest scores, highest first.

    Args:
        scores: A tensor `(classes,)`.
        classes: The class names.
        top: The number of classes.
    """
    values, places = scores.topk(min(top, len(classes)))
    return {classes[place]: round(value, 6) for value, place in zip(values.tolist(), places.tolist(), strict=True)}


def video_rows(scores: "Scores", dataset: "VideoDataset", item: str = "video") -> list[dict[str, Any]]:
    """One row per item: its class or classes, whether the top-1 prediction is right, and its highest scores."""
    classes = dataset.videos.classes
    rows: list[dict[str, Any]] = []
    for video, own, label in zip(scores.videos.tolist(), scores.scores, scores.labels, strict=True):
        top = top_classes(own, classes)
        row: dict[str, Any] = {item: dataset.name(video)}
        if label.ndim:
            row["classes"] = [classes[place] for place in label.nonzero().flatten().tolist()]
            row["right"] = next(iter(top)) in row["classes"]
        else:
            row["class"] = classes[int(label)]
            row["right"] = next(iter(top)) == row["class"]
        rows.append(row | {"scores": top})
    return rows
