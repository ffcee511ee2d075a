"""Draws one region of a test clip as restored by several trained models, to show what a difference in dB looks like."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from torch import Tensor

from vcycle.tasks.loaded_model import load_model
from vcycle.tasks.superres.metrics import Protocol, check_restored, clip_quality, psnr, to_uint8
from vcycle.tasks.superres.models.clips import Restorer, restore
from vcycle.tasks.superres.objective import video_of
from vcycle.tasks.superres.pairs.degrade import imresize
from vcycle.utils.extras import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compared_panels", "restored_crops", "restored_figure"]

_LEAST = 260
"""Width of a panel in pixels, at least: smaller pictures are enlarged by a whole number."""
_TITLE = 24
"""Height of the titles in pixels."""
_DPI = 100
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


def compared_panels(
    bicubic: NDArray[np.uint8], restored: NDArray[np.uint8], truth: NDArray[np.uint8] | None = None
) -> list[tuple[str, NDArray[np.uint8]]]:
    """A frame enlarged by bicubic interpolation and by a model, with titles; with the ground truth, also their PSNR.

    Args:
        bicubic: uint8 `(H, W, 3)`.
        restored: Of the same shape.
        truth: Of the same shape.
    """
    panels = {"bicubic": bicubic, "model": restored}
    if truth is None:
        return [*panels.items()]
    target = _as_clip(truth)
    found = {name: psnr(_as_clip(pixels), target, channels="y").item() for name, pixels in panels.items()}
    return [*((f"{name}, {found[name]:.2f} dB", pixels) for name, pixels in panels.items()), ("original", truth)]


def _as_clip(picture: NDArray[np.uint8]) -> Tensor:
    """A picture `(H, W, 3)` as a clip `(1, 3, H, W)`."""
    return torch.from_numpy(picture).permute(2, 0, 1)[None]


def restored_figure(crops: Sequence[tuple[str, NDArray[np.uint8]]]) -> "Figure":
    """Draw pictures of equal size side by side, pixel by pixel, with titles.

    Args:
        crops: Titles and pixels, uint8 `(H, W, 3)`.
    """
    height, width = crops[0][1].shape[:2]
    larger = -(-_LEAST // width)
    size = (larger * width * len(crops), larger * height + _TITLE)
    figure = new_figure(figsize=(size[0] / _DPI, size[1] / _DPI), dpi=_DPI)
    for number, (title, pixels) in enumerate(crops):
        axis = figure.add_axes((number / len(crops), 0, 1 / len(crops), 1 - _TITLE / size[1]))
        axis.imshow(pixels, interpolation="nearest", aspect="auto")
        axis.set_title(title, fontsize=9, pad=4)
        axis.set_axis_off()
    return figure
