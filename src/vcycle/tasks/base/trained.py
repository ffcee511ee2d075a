"""The use of a trained model: what `vcycle.load` returns, and exported programs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vcycle.errors import VcycleError
from vcycle.plan import Plan, Shape
from vcycle.tasks.base.part import F, Part, R

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from vcycle.tasks.loaded_model import LoadedModel
    from vcycle.tasks.prediction import Prediction, PredictOptions, UpscaleOptions, VideoInput

__all__ = ["TaskTrained"]


class TaskTrained(Part[R, F]):
    """What a trained model of a task does."""

    def predict(
        self, loaded: "LoadedModel", videos: "Sequence[VideoInput]", options: "PredictOptions"
    ) -> "Iterator[Prediction]":
        """Predict the classes of videos, for `LoadedModel.predict` and `predict_windows`.

        Yields:
            Of each video in order, its prediction or those of its windows.

        Raises:
            VcycleError: if the task has no classes.
        """
        raise VcycleError(f"a {self.name} model predicts no classes")

    def upscale(
        self, loaded: "LoadedModel", video: "VideoInput", out: "Path | None", options: "UpscaleOptions"
    ) -> "Tensor | None":
        """Enlarge a video, for `LoadedModel.upscale`.

        Raises:
            VcycleError: if the task enlarges nothing.
        """
        raise VcycleError(f"a {self.name} model does not enlarge videos")

    def input_shape(self, recipe: R, plan: Plan) -> Shape:
        """The shape of the clips that an exported program takes; by default the baseline's."""
        return plan.baseline_shape.shape

    def input_facts(self, recipe: R) -> Mapping[str, Any]:
        """What the network's input must be, for a program that runs without vcycle: JSON, such as `mean` and `std`."""
        return {}
