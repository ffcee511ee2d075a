"""Evaluates models of images: top-1 and top-5 accuracy."""

from typing import ClassVar

from vcycle.tasks.classification.evaluate import VideoEvaluator

__all__ = ["ImageEvaluator"]


class ImageEvaluator(VideoEvaluator):
    """Scores images; each counts once."""

    doing: ClassVar[str] = "evaluating images"
    item: ClassVar[str] = "image"
