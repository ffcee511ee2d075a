"""Writes a video with the predicted class of each time window drawn into it."""

from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcycle.data.prepare.decoding import appearance_in, displayed, open_whole
from vcycle.data.video.colors import check_convertible
from vcycle.data.video.writing import written_video
from vcycle.tasks.prediction import Prediction
from vcycle.utils.extras import new_figure, require

__all__ = ["labels_of", "write_overlay"]

_SHARE = 0.06
"""Height of the text, as a share of the picture's height."""
_SMALLEST = 10.0
"""The least height of the text in pixels."""


def labels_of(windows: Sequence[Prediction]) -> Callable[[float], str]:
    """The label at each time: the most likely class of the window around it whose middle is nearest, with its score.

    Args:
        windows: The windows of one video, in order.

    Returns:
        Maps seconds to the label; empty between windows, and in one that cannot be read.
    """
    spans = [(part.start or 0.0, part.end or 0.0) for part in windows]
    middles = [(start + end) / 2 for start, end in spans]

    def label(seconds: float) -> str:
        place = bisect(middles, seconds)
        near = range(max(place - 1, 0), min(place + 1, len(spans)))
        for number in sorted(near, key=lambda number: abs(middles[number] - seconds)):
            start, end = spans[number]
            if start <= seconds < end and windows[number].classes:
                name, score = next(iter(windows[number].classes.items()))
                return f"{name} {score:.0%}"
        return ""

    return label


def write_overlay(
    source: str,
    windows: Sequence[Prediction],
    out: Path,
    *,
    crf: int = 20,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> None:
    """Write a video with the label of each frame's window at its lower left. There is no audio.

    Args:
        source: The video file.
        windows: Its windows, in order.
        out: The H.264 output file; written atomically.
        crf: CRF of the H.264.
        progress: Called with the number of frames done and the total.

    Raises:
        NotInstalledError: if matplotlib, which draws the text, is not installed.
        VideoError: if the video cannot be read.
        DataError: if the file cannot be written.
    """
    require("matplotlib.figure", "an overlay needs")
    appearance = appearance_in(source)
    check_convertible(source, appearance.colors)
    whole = open_whole(source)
    info = whole.info
    size = (info.height // 2 * 2, info.width // 2 * 2)  # H.264 takes even sizes
    label_at = labels_of(windows)
    with written_video(out, size=size, clock=whole.clock, rate=info.fps, appearance=appearance, crf=crf) as writer:
        for number, (pixels, _) in enumerate(displayed(whole, appearance)):
            picture = pixels[: size[0], : size[1]].copy()
            if label := label_at(float(info.times[number])):
                _draw(picture, label)
            writer.put(picture, int(whole.pts[number]))
            progress(number + 1, info.frames)


def _draw(picture: NDArray[np.uint8] | NDArray[np.uint16], label: str) -> None:
    """Draw a label at the lower left of a picture `(H, W, 3)`, in place."""
    height, width, _ = picture.shape
    pixels = max(_SMALLEST, _SHARE * height)
    text = _rendered(label, pixels)
    if text.shape[1] > width:
        text = _rendered(label, pixels * width / text.shape[1])
    text = text[-height:, :width]
    place = picture[height - text.shape[0] :, : text.shape[1]]
    place[:] = text if picture.dtype == np.uint8 else text.astype(np.uint16) * 257


@lru_cache(maxsize=16)
def _rendered(label: str, pixels: float) -> NDArray[np.uint8]:
    """White text on black, uint8 `(h, w, 3)`; a line of about `pixels` high."""
    dpi = 72.0  # a point is a pixel
    figure = new_figure(dpi=dpi, facecolor="black")
    require("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    text = figure.text(0, 0, label, color="white", fontsize=0.75 * pixels, va="baseline", parse_math=False)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    box = text.get_window_extent(renderer)
    margin = 0.25 * pixels
    wide, high = (float(np.ceil(side + 2 * margin)) for side in (box.width, box.height))
    figure.set_size_inches(wide / dpi, high / dpi)
    text.set_position(((margin - box.x0) / wide, (margin - box.y0) / high))
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()  # type: ignore[attr-defined]
