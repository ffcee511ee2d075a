"""Draws one region of a test clip as restored by several trained models, to show what a difference in dB looks like."""

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
    """Crop a test clip's middle frame: bicubic interpolation, the output of each model, and the ground truth.

    The crop is where bicubic interpolation differs most from the ground truth.

    Args:
        runs: Maps a label to a run folder. All runs have the same recipe, whose test split is used.
        clip: Index of the clip.
        side: Side of the crop in pixels; smaller if the frame is.

    Returns:
        Titles, with the luma PSNR of the whole clip, and pixels, uint8 `(side, side, 3)`.

    Raises:
        CheckpointError: if a run has no trained model.
        DataError: if a model's output is not finite.
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
    # Mean error around each pixel whose crop fits in the frame.
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
    """Draw crops of equal size side by side, with titles.

    Args:
        crops: Titles and pixels, uint8 `(H, W, 3)`.
    """
    figure = new_figure(figsize=(_INCHES * len(crops), _INCHES + 0.3), layout="constrained")
    for axis, (title, pixels) in zip(figure.subplots(1, len(crops), squeeze=False)[0], crops, strict=True):
        axis.imshow(pixels, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return figure
