"""Loads trained models together with their recipes."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from vcycle.config.recipe import RecipeBase
from vcycle.errors import CheckpointError, RecipeError, VcycleError, summary
from vcycle.tasks.base import Task, tasks
from vcycle.tasks.prediction import Prediction, PredictOptions, UpscaleOptions, VideoInput
from vcycle.tasks.recipes import load_recipe
from vcycle.tasks.saved_weights import read_saved, refuse_untrained, run_meant, run_of

__all__ = ["LoadedModel", "load", "load_initial", "load_model"]


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A trained model, with what is needed to use it."""

    model: nn.Module
    """The network, in evaluation mode. It may be moved to another device."""
    task: Task[Any, Any]
    recipe: RecipeBase
    """The resolved recipe that it was trained with."""
    classes: tuple[str, ...]
    """Class names, in the order of its outputs; empty for a task without classes."""
    origin: str
    """The file of its weights."""
    step: int
    """Number of training steps; 0 if unknown."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next((tensor.device for tensor in self.model.state_dict().values()), torch.device("cpu"))

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        videos: VideoInput,
        *,
        top: int = 5,
        views: tuple[int, int] | None = None,
        frame_rate: float | None = None,
        workers: int = 0,
    ) -> Prediction: ...
    @overload
    def predict(
        self,
        videos: Sequence[VideoInput],
        *,
        top: int = 5,
        views: tuple[int, int] | None = None,
        frame_rate: float | None = None,
        workers: int = 0,
    ) -> list[Prediction]: ...
    def predict(
        self,
        videos: VideoInput | Sequence[VideoInput],
        *,
        top: int = 5,
        views: tuple[int, int] | None = None,
        frame_rate: float | None = None,
        workers: int = 0,
    ) -> Prediction | list[Prediction]:
        """Predict the classes of a video or of many, as `vcycle predict` does.

        The scores are those of that command with the same files, on the same device.

        Args:
            videos: A path or URL, or frames, uint8 `(T, H, W, 3)`, RGB, an array or a tensor on the CPU; or a sequence
                of them. A picture may be `(H, W, 3)`.
            top: Number of classes in `Prediction.classes`.
            views: Clips per video and crops per clip, such as `(10, 3)`; by default the recipe's.
            frame_rate: Frames per second of arrays. Only a recipe that samples at a rate (`sampling.fps`) needs it.
            workers: Processes that decode. 0 decodes in this process, which a broken file may end.

        Returns:
            The prediction; for a sequence, a list in its order.

        Raises:
            VideoError: if the video cannot be read. In a sequence, `Prediction.error` says so instead.
            DataError: if an array is not as described, or the model's scores are not finite.
            RecipeError: if the model does not support the views.
            VcycleError: if the model has no classes.
        """
        options = PredictOptions(top=top, views=views, frame_rate=frame_rate, workers=workers)
        if isinstance(videos, str | Path | Tensor | np.ndarray):
            return self._predictions([videos], options)[0].checked()
        return self._predictions(videos, options)

    def predict_windows(
        self,
        video: VideoInput,
        *,
        window: float,
        stride: float | None = None,
        top: int = 5,
        views: tuple[int, int] | None = None,
        frame_rate: float | None = None,
        workers: int = 0,
    ) -> list[Prediction]:
        """Predict the classes of each time window of a video, as `vcycle predict --window` does.

        Each window is predicted as if its part of the video were a video of its own. The last may be shorter.

        Args:
            video: The video, as for `predict`; arrays need a `frame_rate`.
            window: Length of a window in seconds.
            stride: Seconds from the start of a window to that of the next; by default `window`.
            top: This and the arguments below are those of `predict`.
            views: Clips per window and crops per clip.
            frame_rate: Frames per second of an array.
            workers: Processes that decode. The length of a file is always read in this process, which a broken file may
                end.

        Raises:
            VideoError: if the video cannot be read. A window that cannot be read has an `error` instead.
            DataError: if the window or stride is below 0.001 s, gives more than a million windows, or as `predict`.
        """
        options = PredictOptions(
            top=top, views=views, frame_rate=frame_rate, workers=workers, window=window, stride=stride
        )
        found = self._predictions([video], options)
        if len(found) == 1 and found[0].start is None:
            found[0].checked()
        return found

    def _predictions(self, videos: Sequence[VideoInput], options: PredictOptions) -> list[Prediction]:
        training = self.model.training
        try:
            return list(self.task.predict(self, videos, options))
        finally:
            self.model.train(training)

    def upscale(
        self,
        video: VideoInput,
        out: str | Path | None = None,
        *,
        chunk: int = 15,
        overlap: int = 4,
        crf: int | None = None,
        frame_rate: float | None = None,
    ) -> Tensor | None:
        """Enlarge a video, as `vcycle upscale` does.

        Args:
            video: Frames, uint8 `(T, H, W, 3)`, RGB; or, with `out`, a path or an image folder.
            out: The video file to write; needed for a path, whose frames may not fit into memory.
            chunk: Frames restored at a time; fewer need less memory.
            overlap: Extra frames on either side of a chunk, as context for the model.
            crf: H.264 quality of the file, by default 17, which looks lossless; 23 is smaller.
            frame_rate: Frames per second of an image folder, which needs it.

        Returns:
            For frames, the enlarged ones, uint8 `(T, s·H, s·W, 3)` on the CPU; None for a file.

        Warns:
            UserWarning: if a file is damaged: its readable part is enlarged.

        Raises:
            VideoError: if the video cannot be read.
            DataError: if an argument is not as described, or the file cannot be written.
            VcycleError: if the model enlarges nothing.
        """
        place = None if out is None else Path(out)
        options = UpscaleOptions(chunk=chunk, overlap=overlap, crf=crf, frame_rate=frame_rate)
        return self.task.upscale(self, video, place, options)


def load(path: str | Path, *, device: str | torch.device = "auto", raw: bool = False) -> LoadedModel:
    """Load a trained model to use it in Python.

    Example:
        ``vcycle.load("runs/small-cascade").predict("clip.mp4").classes``

    Args:
        path: A run folder (its newest readable checkpoint is loaded), a checkpoint of a run, or the output of `vcycle
            export`. Averaged weights (EMA) are preferred.
        device: `cpu`, `cuda` or any other of PyTorch's; `auto` is a GPU if there is one.
        raw: Whether to load the raw weights instead of their average.

    Raises:
        CheckpointError: if the model is missing, untrained or unreadable, or the file has no recipe.
        RecipeError: if its recipe cannot be read.
        VcycleError: if there is no such device.
    """
    loaded = load_model(Path(path).expanduser(), warnings.warn, raw=raw)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        loaded.model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise VcycleError(f"device={str(device)!r}: {summary(error)}; cpu, cuda or auto is accepted") from None
    return loaded


def load_model(
    path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False, accepted: Sequence[str] = ()
) -> LoadedModel:
    """Load a trained model.

    Args:
        path: A run folder (its newest readable checkpoint is loaded), a checkpoint of a run, or the output of `vcycle
            export`. Averaged weights (EMA) are preferred.
        on_message: Called with each checkpoint that cannot be read and is skipped.
        raw: Whether to load the raw weights instead of their average.
        accepted: The tasks that it may be of; by default any.

    Raises:
        CheckpointError: if the model is missing, untrained, unreadable or of another task, or the file has no recipe.
        RecipeError: if its recipe cannot be read.
    """
    if (run := run_of(path)) is not None:
        _refuse_other(load_recipe(str(run)), path, accepted)  # before reading files that another task may lack
    saved = read_saved(path, on_message, raw=raw)
    trained = saved.trained
    if trained is None:
        raise CheckpointError(
            f"{path} holds weights without a recipe: train from it with init={path}; to load a model, give a run "
            f"folder or the output of vcycle export{run_meant(path)}"
        )
    recipe = trained.recipe
    _refuse_other(recipe, path, accepted)
    refuse_untrained(path, saved.weights.source, trained.step)
    found = tasks[recipe.task]
    model = found.build_model(recipe, len(trained.classes), download=False)
    found.load_weights(model, saved.weights, recipe)
    return LoadedModel(
        model=model.eval(),
        task=found,
        recipe=recipe,
        classes=trained.classes,
        origin=saved.weights.source,
        step=trained.step,
    )


def load_initial(
    recipe: RecipeBase, classes: Sequence[str], on_message: Callable[[str], None] = lambda _: None
) -> LoadedModel:
    """Load a recipe's model with its initial weights, such as published ones.

    Raises:
        RecipeError: if the recipe sets no initial weights.
        CheckpointError: if they do not fit, or do not cover the whole model.
    """
    refuse_no_init(recipe)
    task = tasks[recipe.task]
    model = task.build_model(recipe, len(classes), download=False)
    if not task.init_weights(model, recipe, classes, on_message):
        raise CheckpointError(f"weights {recipe.init.path} do not cover the whole model {recipe.model.name}")
    return LoadedModel(
        model=model.eval(), task=task, recipe=recipe, classes=tuple(classes), origin=str(recipe.init.path), step=0
    )


def refuse_no_init(recipe: RecipeBase) -> None:
    """Refuse to evaluate a recipe without pretrained weights, before its data is read.

    Raises:
        RecipeError: if the recipe sets no weights, or a new classifier.
    """
    if recipe.init.path is None or getattr(recipe.init, "head", "keep") == "new":
        raise RecipeError(
            "the model of a recipe is untrained: give a run folder, the output of `vcycle export`, or weights of the "
            "whole model with init=FILE"
        )


def _refuse_other(recipe: RecipeBase, path: Path, accepted: Sequence[str]) -> None:
    if accepted and recipe.task not in accepted:
        others = ", ".join(f"`vcycle {name}`" for name in (*tasks[recipe.task].commands, "eval"))
        raise CheckpointError(
            f"{path} is a {recipe.task} model, but this command needs {' or '.join(accepted)}: use {others}"
        )
