"""Use of a trained model: videos as they are given, the options, and the classes that it predicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vcycle.data.video import VideoError

__all__ = ["PredictOptions", "Prediction", "UpscaleOptions", "VideoInput"]

VideoInput: TypeAlias = str | Path | Tensor | NDArray[np.uint8]
"""A video: a path or URL, or its frames, uint8 `(T, H, W, 3)`, RGB; a single picture `(H, W, 3)`."""


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """How classes are predicted; see `LoadedModel.predict` and `LoadedModel.predict_windows`."""

    top: int
    """Number of classes."""
    views: tuple[int, int] | None
    """Clips per video and crops per clip; None: the recipe's."""
    frame_rate: float | None
    """Frames per second of arrays."""
    workers: int
    """Processes that decode."""
    window: float | None = None
    """Seconds of a time window, if videos are cut into windows."""
    stride: float | None = None
    """Seconds from window to window; None: as long as a window."""


@dataclass(frozen=True, kw_only=True)
class UpscaleOptions:
    """How a video is enlarged; see `LoadedModel.upscale`."""

    chunk: int
    """Frames at a time."""
    overlap: int
    """Extra frames on either side of a chunk."""
    crf: int | None
    """H.264 quality of the file; None: the task's."""
    frame_rate: float | None
    """Frames per second of an image folder."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The classes of a video, an image, or a time window of a video."""

    source: str
    """Its path or URL; `array 0` for the first of the arrays given."""
    classes: Mapping[str, float] = field(default_factory=dict)
    """The most likely classes with their scores, 0 to 1, highest first; empty if it cannot be read."""
    scores: Tensor | None = field(default=None, repr=False)
    """The scores of all classes, float64 `(classes,)`, in the model's order; None if it cannot be read."""
    start: float | None = None
    """Start of the time window in seconds; None for a whole video."""
    end: float | None = None
    """End of the time window in seconds."""
    error: str | None = None
    """Why it cannot be read, in one line."""
    damaged: str | None = None
    """A fault of a file that was used in spite of it, such as `ends after 4.0 of 8.0 s`."""

    def checked(self) -> "Prediction":
        """The prediction itself.

        Raises:
            VideoError: if the video cannot be read.
        """
        if self.error is not None:
            raise VideoError(self.source, self.error)
        return self
