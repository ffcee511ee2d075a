"""The models: what each needs of a clip's shape (without torch), and how to build it."""

from typing import Any

from vcycle.tasks.recognition.models.catalog import build, names, needs

__all__ = ["build", "fully_convolutional", "names", "needs"]


def __getattr__(name: str) -> Any:
    if name != "fully_convolutional":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vcycle.tasks.recognition.models.head import fully_convolutional  # needs torch

    return fully_convolutional
