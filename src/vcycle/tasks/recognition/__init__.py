"""Recognition: video classification (Wu et al. 2020).

Names are imported on first use, so that planning does not import torch.
"""

from typing import TYPE_CHECKING

from vcycle.utils.lazy import lazy_names

if TYPE_CHECKING:
    from vcycle.tasks.classification.metrics import ClassResult as ClassResult
    from vcycle.tasks.classification.metrics import RecognitionMetrics as RecognitionMetrics
    from vcycle.tasks.classification.metrics import class_results as class_results
    from vcycle.tasks.classification.metrics import confusion as confusion
    from vcycle.tasks.classification.objective import Recognition as Recognition
    from vcycle.tasks.classification.scores import Scored as Scored
    from vcycle.tasks.classification.scores import Scores as Scores
    from vcycle.tasks.classification.scores import Scoring as Scoring
    from vcycle.tasks.classification.scores import score_each as score_each

_SHARED = "vcycle.tasks.classification"
_MODULES = {
    **dict.fromkeys(("ClassResult", "RecognitionMetrics", "class_results", "confusion"), f"{_SHARED}.metrics"),
    "Recognition": f"{_SHARED}.objective",
    **dict.fromkeys(("Scored", "Scores", "Scoring", "score_each"), f"{_SHARED}.scores"),
}

__all__ = sorted(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
