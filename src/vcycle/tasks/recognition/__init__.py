"""Recognition: video classification (Wu et al. 2020).

Names are imported on first use, so that planning does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcycle.tasks.recognition.metrics import ClassResult as ClassResult
    from vcycle.tasks.recognition.metrics import RecognitionMetrics as RecognitionMetrics
    from vcycle.tasks.recognition.metrics import class_results as class_results
    from vcycle.tasks.recognition.metrics import confusion as confusion
    from vcycle.tasks.recognition.metrics import evaluate as evaluate
    from vcycle.tasks.recognition.objective import Recognition as Recognition
    from vcycle.tasks.recognition.scores import Scored as Scored
    from vcycle.tasks.recognition.scores import Scores as Scores
    from vcycle.tasks.recognition.scores import Scoring as Scoring
    from vcycle.tasks.recognition.scores import score_each as score_each

_MODULES = {
    "ClassResult": "metrics",
    "RecognitionMetrics": "metrics",
    "Recognition": "objective",
    "Scored": "scores",
    "Scores": "scores",
    "Scoring": "scores",
    "class_results": "metrics",
    "confusion": "metrics",
    "evaluate": "metrics",
    "score_each": "scores",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
