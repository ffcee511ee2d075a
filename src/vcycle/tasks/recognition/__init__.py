"""Recognition: what a clip's class is. Loss, evaluation at the full grid (Wu et al. 2020, section 4)."""

from vcycle.tasks.recognition.evaluation import Evaluation, evaluate
from vcycle.tasks.recognition.task import Recognition

__all__ = ["Evaluation", "Recognition", "evaluate"]
