"""The classes that a trained model gives a video, and the forms in which a video is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vcycle.data.video import VideoError

__all__ = ["Prediction", "VideoInput"]

VideoInput: TypeAlias = str | Path | Tensor | NDArray[np.uint8]
"""A video: a path or URL, or its frames, uint8 `(T, H, W, 3)`, RGB; a single picture `(H, W, 3)`."""


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
