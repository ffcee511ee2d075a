"""One place in a restored video, as each of several networks sees it, beside the truth."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["restored_figure"]

_INCHES = 2.6


def restored_figure(crops: Sequence[tuple[str, NDArray[np.uint8]]]) -> "Figure":
    """Crops of one size beside each other, each below its title.

    Args:
        crops: Title and pixels, uint8 `(H, W, 3)`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_INCHES * len(crops), _INCHES + 0.3), layout="constrained")
    for axis, (title, pixels) in zip(figure.subplots(1, len(crops), squeeze=False)[0], crops, strict=True):
        axis.imshow(pixels, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return figure
