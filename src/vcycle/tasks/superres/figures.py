"""One place in a test clip as each of several trained networks restores it: what a number of dB looks like."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.superres.metrics import Protocol, check_restored, clip_quality, to_uint8
from vcycle.tasks.superres.models.clips import Restorer, restore
from vcycle.tasks.superres.objective import video_of
from vcycle.tasks.superres.pairs.degrade import imresize
from vcycle.utils.extras import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["restored_crops", "restored_figure"]

_INCHES = 2.6
_LUMA = Protocol(channels="y")


def restored_crops(runs: Mapping[str, Path], *, clip: int = 0, side: int = 64) -> list[tuple[str, NDArray[np.uint8]]]:
    """A crop of a test clip's middle frame: enlarged by bicubic interpolation, by each network, and the truth.

    The crop is where bicubic interpolation is furthest from the truth.

    Args:
        runs: What to call a network, and the folder of its run; of one recipe, whose test split is taken.
        clip: Which clip of it.
        side: Of the crop, in pixels; less where the frame is smaller.

    Returns:
        Titles, with the luma PSNR of the whole clip, and pixels, uint8 `(side, side, 3)`.

    Raises:
        CheckpointError: if a run has no trained network.
        DataError: if what a network makes of the clip is not all numbers.
        VideoError: if the clip cannot be read.
    """
    opened = {name: load_model(path) for name, path in runs.items()}
    first = next(iter(opened.values()))
    splits = first.task.find(first.recipe, Path())
    pair = first.task.dataset(first.recipe, splits, "test", Path()).whole(clip)
    truth = pair.hr.movedim(-1, -3)
    bicubic = imresize(pair.lr, 4).movedim(-1, -3)
    versions = {"bicubic": bicubic}
    for name, network in opened.items():
        restored = restore(cast("Restorer", network.model), video_of(pair.lr)[None])[0]
        check_restored(restored, f"{runs[name]}, clip {clip}", "fp32")
        versions[name] = to_uint8(restored)
    middle = len(truth) // 2
    side = min(side, *truth.shape[-2:])
    error = (bicubic[middle].double() - truth[middle].double()).square().sum(dim=0).numpy()
    # The mean about a pixel, where a crop about it lies within the frame.
    room = uniform_filter(error, side)[side // 2 :, side // 2 :][
        : error.shape[0] - side + 1, : error.shape[1] - side + 1
    ]
    top, left = np.unravel_index(int(room.argmax()), room.shape)
    titles = {name: f"{name}, {clip_quality(frames, truth, _LUMA).psnr:.2f} dB" for name, frames in versions.items()}
    return [
        (title, frames[middle, :, top : top + side, left : left + side].permute(1, 2, 0).numpy())
        for title, frames in zip([*titles.values(), "truth"], [*versions.values(), truth], strict=True)
    ]


def restored_figure(crops: Sequence[tuple[str, NDArray[np.uint8]]]) -> "Figure":
    """Crops of one size beside each other, each below its title.

    Args:
        crops: Title and pixels, uint8 `(H, W, 3)`.
    """
    figure = new_figure(figsize=(_INCHES * len(crops), _INCHES + 0.3), layout="constrained")
    for axis, (title, pixels) in zip(figure.subplots(1, len(crops), squeeze=False)[0], crops, strict=True):
        axis.imshow(pixels, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return figure
