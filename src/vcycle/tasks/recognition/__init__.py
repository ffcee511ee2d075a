"""Recognition: what a clip's class is. Loss, evaluation at the full grid (Wu et al. 2020, section 3.1)."""

from vcycle.tasks.recognition.evaluation import ClassResult, Evaluation, class_results, confusion, evaluate
from vcycle.tasks.recognition.scores import Scored, Scores, Scoring, score_each
from vcycle.tasks.recognition.task import Recognition

__all__ = [
    "ClassResult",
    "Evaluation",
    "Recognition",
    "Scored",
    "Scores",
    "Scoring",
    "class_results",
    "confusion",
    "evaluate",
    "score_each",
]
