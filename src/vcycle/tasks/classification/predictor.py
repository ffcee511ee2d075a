"""Predicts the classes of videos, or of their time windows, with a trained model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from vcycle.data import Replacement, VideoDataset, VideoError, VideoList
from vcycle.data.given import ArraySource, frames_of
from vcycle.errors import DataError
from vcycle.tasks.classification.eval_report import top_classes
from vcycle.tasks.classification.evaluate import views_of
from vcycle.tasks.classification.recipe import ClassificationRecipe
from vcycle.tasks.classification.sampling import grids_of
from vcycle.tasks.loaded_model import LoadedModel
from vcycle.tasks.prediction import Prediction, VideoInput
from vcycle.tasks.recipes import override_trained

if TYPE_CHECKING:
    from vcycle.tasks.classification.evaluate import VideoEvaluator
    from vcycle.tasks.classification.task import ClassificationTask

__all__ = ["SHORTEST_WINDOW", "Predictor", "predictor_of", "time_windows"]


def time_windows(duration: float, window: float, stride: float) -> list[tuple[float, float]]:
    """Cut a duration into windows: the start and end of each, in seconds.

    Windows start at the multiples of the stride. The last is the first that reaches the end, or else the last that
    starts before it; it may be shorter.

    Example:
        >>> time_windows(5.0, 2.0, 2.0)
        [(0.0, 2.0), (2.0, 4.0), (4.0, 5.0)]
        >>> time_windows(5.0, 2.0, 1.5)
        [(0.0, 2.0), (1.5, 3.5), (3.0, 5.0)]
        >>> time_windows(5.0, 1.0, 3.0)
        [(0.0, 1.0), (3.0, 4.0)]

    Raises:
        DataError: if there are more than a million windows.
    """
    if duration / stride > _MOST_WINDOWS:
        raise DataError(
            f"a stride of {stride:g} s gives {duration / stride:,.0f} windows in {duration:,.0f} s: at most "
            f"{_MOST_WINDOWS:,} are accepted"
        )
    found = [(0.0, min(window, duration))]
    while found[-1][1] < duration - _MOMENT and (start := len(found) * stride) < duration - _MOMENT:
        found.append((start, min(start + window, duration)))
    return found


_MOMENT = 1e-6
"""Seconds that times are rounded by."""
SHORTEST_WINDOW = 0.001
"""Seconds of a window or stride, at least."""
_MOST_WINDOWS = 1_000_000


def predictor_of(loaded: LoadedModel, overrides: Sequence[str], source: str, workers: int | None = None) -> "Predictor":
    """The predictor of a model whose recipe is changed.

    Args:
        loaded: The model, on its device.
        overrides: Changes to its recipe.
        source: What the model was loaded from, for messages.
        workers: Processes that decode; by default those of the recipe.

    Raises:
        RecipeError: if a key is wrong, or may not change.
    """
    recipe = override_trained(loaded.recipe, overrides, source)
    assert isinstance(recipe, ClassificationRecipe)
    if workers is not None:
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"workers": workers})})
    return Predictor(loaded, recipe)


class Predictor:
    """A trained model with the recipe by which it predicts."""

    def __init__(self, loaded: LoadedModel, recipe: ClassificationRecipe) -> None:
        """Store the model, on its device, and the recipe."""
        self.loaded, self.recipe = loaded, recipe
        task = cast("ClassificationTask[Any]", loaded.task)
        self._has_time = task.frame_rate is None
        self._frame_rate: float | None = task.frame_rate or getattr(recipe.data, "frame_rate", None)
        """Frames per second of folders of frames, which are then accepted wherever a file is."""
        self.item = task.item
        """What a file is called: ``video`` or ``image``."""
        self.protocol = ""
        """The evaluation protocol in words, once files have been predicted."""

    def predict(
        self,
        videos: Sequence[VideoInput],
        top: int,
        *,
        frame_rate: float | None = None,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Prediction]:
        """Predict the classes of videos, one prediction for each.

        Args:
            videos: Paths, URLs or arrays.
            top: Number of classes.
            frame_rate: Frames per second of arrays.
            on_fault: Called with each fault of a file that is used in spite of it.

        Raises:
            DataError: if an array has the wrong shape or type, or needs a frame rate.
        """
        return self._scored(self._dataset(videos, frame_rate), top, on_fault)

    def predict_windows(
        self,
        video: VideoInput,
        top: int,
        *,
        window: float,
        stride: float | None = None,
        frame_rate: float | None = None,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Prediction]:
        """Predict the classes of each window of a video; a single prediction with an error if it cannot be read.

        Its length is read in this process, not in a worker.

        Args:
            video: A path, a URL or an array.
            top: Number of classes.
            window: Seconds of a window.
            stride: Seconds from window to window; by default ``window``.
            frame_rate: Frames per second of an array.
            on_fault: Called with each fault of a file that is used in spite of it.

        Raises:
            DataError: if the window or the stride is too short, or as ``predict``.
        """
        stride = window if stride is None else stride
        if not (SHORTEST_WINDOW <= window < np.inf and SHORTEST_WINDOW <= stride < np.inf):
            raise DataError(f"window={window:g}, stride={stride:g}: both are seconds, at least {SHORTEST_WINDOW:g}")
        if not self._has_time:
            raise DataError(f"window={window:g} s: an {self.item} has no time windows; give whole {self.item}s")
        if not isinstance(video, str | Path):
            if frame_rate is None:
                raise DataError(f"window={window:g} s of an array: give its frame_rate")
            video = frames_of(video, "array 0")  # once, because it may copy them: all windows share the frames
        whole = self._dataset([video], frame_rate)
        try:
            duration = whole.source.info(0).duration
        except VideoError as error:
            yield Prediction(source=whole.videos.paths[0], error=error.cause)
            return
        spans = time_windows(duration, window, stride)
        yield from self._scored(self._dataset([video] * len(spans), frame_rate, spans), top, on_fault)

    def rows(
        self,
        paths: Sequence[str],
        top: int,
        on_fault: Callable[[str], None] = lambda _: None,
        *,
        window: float | None = None,
        stride: float | None = None,
        on_window: Callable[[Prediction], object] = lambda _: None,
    ) -> Iterator[dict[str, Any]]:
        """Yield for each file its path, and its classes with their scores, its windows or its error.

        Args:
            paths: Paths or URLs.
            top: Number of classes.
            on_fault: Called with each fault of a file that is used in spite of it.
            window: Seconds of a window, if files are cut into windows.
            stride: Seconds from window to window.
            on_window: Called with each window.
        """
        if window is None:
            for found in self.predict(paths, top, on_fault=on_fault):
                yield {self.item: found.source} | _said(found)
            return
        for path in paths:
            row: dict[str, Any] = {self.item: path}
            for part in self.predict_windows(path, top, window=window, stride=stride, on_fault=on_fault):
                if part.start is None:
                    row |= _said(part)
                else:
                    times = {"start": round(part.start, 6), "end": round(part.end or 0.0, 6)}
                    row.setdefault("windows", []).append(times | _said(part))
                    on_window(part)
            yield row

    def _dataset(
        self, videos: Sequence[VideoInput], frame_rate: float | None, spans: Sequence[tuple[float, float]] = ()
    ) -> VideoDataset:
        """The dataset of videos, or of parts of them in seconds."""
        given: dict[int, Tensor] = {}
        names: list[str] = []
        for number, video in enumerate(videos):
            if isinstance(video, str | Path):
                names.append(str(video))
                continue
            names.append(f"array {0 if spans else number}")
            given[number] = frames_of(video, names[-1])
        listed = VideoList(
            root=Path(),
            paths=names,
            labels=[0] * len(names),
            classes=self.loaded.classes,
            source=Path(self.loaded.origin),
            frame_rate=self._frame_rate,
            spans=[seconds for span in spans for seconds in span],
        )
        dataset = VideoDataset(listed, grids_of(self.recipe))
        if given:
            if frame_rate is None and dataset.grids.fps is not None:
                raise DataError(
                    f"{names[min(given)]}: the model samples at a rate (sampling.fps={dataset.grids.fps:g}): give the "
                    "frame_rate of arrays"
                )
            if frame_rate is not None and not 0 < frame_rate < np.inf:
                raise DataError(f"frame_rate={frame_rate:g}: must be above 0")
            dataset.source = ArraySource(given, dataset.source, frame_rate or 1.0)
        return dataset

    def _scored(self, dataset: VideoDataset, top: int, on_fault: Callable[[str], None]) -> Iterator[Prediction]:
        loaded, videos = self.loaded, dataset.videos
        damaged: dict[str, str] = {}

        def take(fault: str) -> None:
            on_fault(fault)
            path, _, what = fault.removeprefix(f"damaged {self.item} ").rpartition(": ")
            damaged[path] = what

        # At most one process per clip.
        workers = min(self.recipe.data.workers, len(dataset) * views_of(self.recipe).clips)
        recipe = self.recipe.model_copy(update={"data": self.recipe.data.model_copy(update={"workers": workers})})
        made = loaded.task.evaluator(recipe, dataset, loaded.classes, scope="full")
        evaluator = cast("VideoEvaluator", made)
        evaluator.on_fault = take
        self.protocol = evaluator.protocol
        for found in evaluator.each(loaded.model, loaded.device):
            source = videos.paths[found.video]
            start, end = videos.span(found.video) if videos.spans else (None, None)
            if isinstance(found, Replacement):
                yield Prediction(source=source, start=start, end=end, error=found.cause)
                continue
            yield Prediction(
                source=source,
                classes=top_classes(found.scores, loaded.classes, top),
                scores=found.scores,
                start=start,
                end=end,
                damaged=damaged.get(source),
            )


def _said(found: Prediction) -> dict[str, Any]:
    """What a row says of a prediction."""
    if found.error is not None:
        return {"error": found.error}
    said: dict[str, Any] = {"classes": found.classes}
    return said if found.damaged is None else said | {"damaged": found.damaged}
