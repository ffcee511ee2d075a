"""Trained models, opened from where they are kept: the folder of a run, or an exported file."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from torch import nn

from vcycle.errors import CheckpointError
from vcycle.nn.weights.files import Weights, read_weights
from vcycle.plan import Plan
from vcycle.tasks.recipes import AnyRecipe, load_any, parse_any, recognition
from vcycle.tasks.recognition.build import build_model
from vcycle.tasks.recognition.recipe import Recipe
from vcycle.tasks.recognition.weights.loading import take_weights
from vcycle.train.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint
from vcycle.train.run import RunFolder

__all__ = [
    "METADATA",
    "Kept",
    "Opened",
    "Trained",
    "is_exported",
    "open_model",
    "read_kept",
    "refuse_untrained",
    "run_meant",
    "run_of",
    "task_of",
    "without_downloads",
]

METADATA = "vcycle."
"""What the names of our own metadata in a safetensors file begin with."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How a model came about."""

    recipe: AnyRecipe
    """The recipe that it was trained by, resolved."""
    plan: Plan
    """The plan that it was trained under."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of its outputs; none of super-resolution."""
    step: int
    """Steps that it was trained for."""
    evaluation: Mapping[str, Any] | None = None
    """Its last evaluation in training: numbers, and the protocol that they were found by."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Weights, and how they came about where that is known."""

    weights: Weights
    trained: Trained | None


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A trained model and what it was trained to do."""

    model: nn.Module
    """In evaluation mode, on the CPU: float `(B, C, T, H, W)` in, logits `(B, classes)` out."""
    recipe: Recipe
    """The recipe that it was trained by, resolved."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of the logits."""
    origin: str
    """Where the weights were read from: a file."""
    step: int
    """Steps that it was trained for."""


def open_model(path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False) -> Opened:
    """Open a trained model of recognition.

    Args:
        path: The folder of a run, of which the newest readable checkpoint is taken, one of its checkpoints, or what
            `vcycle export` wrote.
        on_message: Told of checkpoints that cannot be read and are passed over.
        raw: As in `read_kept`.

    Raises:
        CheckpointError: if there is no trained model, it cannot be read, or its file does not say what it is.
        RecipeError: if its recipe is not one that can be read here, or is of another task.
    """
    if (run := run_of(path)) is not None:
        recognition(load_any(str(run)), str(path))  # before what a run of another task may lack
    kept = read_kept(path, on_message, raw=raw)
    trained = kept.trained
    if trained is None:
        raise CheckpointError(
            f"{path} holds weights and does not say of which model and classes: it can be trained from (init={path}); "
            f"to be opened, the folder of a run or a file that vcycle export wrote is accepted{run_meant(path)}"
        )
    recipe = recognition(trained.recipe, str(path))
    model = build_model(without_downloads(recipe), len(trained.classes), recipe.run.seed)
    take_weights(model, kept.weights, name=recipe.model.name)
    return Opened(
        model=model.eval(),
        recipe=recipe,
        classes=trained.classes,
        origin=kept.weights.source,
        step=trained.step,
    )


def read_kept(path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False) -> Kept:
    """Read weights, and how they came about where that is known.

    Args:
        path: The folder of a run, of which the newest readable checkpoint is taken, one of its checkpoints, or any file
            of weights.
        on_message: Told of checkpoints that cannot be read and are passed over.
        raw: Whether the weights themselves are wanted where a run keeps an average of them too, which is what is
            evaluated.

    Raises:
        CheckpointError: if there are no weights, or they cannot be read, or there is no average for `raw` to go past.
        RecipeError: if their recipe is not one that can be read here.
    """
    if path.is_dir() or run_of(path) is not None:
        return _of_run(path, on_message, raw=raw)
    if raw:
        raise CheckpointError(f"{path} is not of a run with training.ema: only the checkpoints of one have raw weights")
    weights = read_weights(path)
    own = f"{METADATA}recipe" in weights.metadata
    return Kept(weights=weights, trained=_trained_in(weights.metadata, path) if own else None)


def is_exported(path: Path) -> bool:
    """Whether a file is one that `vcycle export` wrote. Its tensors are not read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return f"{METADATA}recipe" in (file.metadata() or {})
    except (safetensors.SafetensorError, OSError, ValueError):
        return False


def task_of(path: Path) -> str | None:
    """What a trained model does, by its recipe; None where it is neither the folder of a run nor an exported file.

    Raises:
        RecipeError: if its recipe is not one that can be read here.
    """
    run = run_of(path)
    if run is not None or path.is_dir():
        return None if run is None else load_any(str(run)).task
    if not is_exported(path):
        return None
    with safetensors.safe_open(path, framework="pt") as file:
        return parse_any(file.metadata()[f"{METADATA}recipe"], f"the recipe in {path}").task


def run_of(path: Path) -> Path | None:
    """The run that a path names: its folder, or one of its checkpoints; None where it names something else."""
    if path.is_dir():
        return path if RunFolder(path).recipe.is_file() else None
    whole = path.resolve()
    run = RunFolder(whole.parent.parent)
    return run.path if run.recipe.is_file() and whole.parent == run.checkpoints else None


def refuse_untrained(path: Path, origin: str, step: int) -> None:
    """Refuse a model from before its first step.

    Raises:
        CheckpointError: saying how to train it.
    """
    if step == 0:
        remedy = f"; `vcycle train {path} --resume` trains it" if path.is_dir() else ""
        raise CheckpointError(f"the model in {path} is untrained: {origin} is from before its first step{remedy}")


def without_downloads(recipe: Recipe) -> Recipe:
    """The recipe without torchvision's pretrained weights, which would be fetched only to be replaced."""
    options = {key: value for key, value in recipe.model.options.items() if key != "weights"}
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"options": options})})


def run_meant(path: Path) -> str:
    """The run that a checkpoint or its folder is of, or those that a folder holds, to follow it in a message."""
    for folder in (path.parent, path.parent.parent):
        run = RunFolder(folder)
        if run.recipe.is_file() and (path == run.checkpoints or path.parent == run.checkpoints):
            return f" (is {folder} meant?)"
    held = [run for inner in (".", "runs") for run in sorted((path / inner).glob(f"*/{RunFolder(path).recipe.name}"))]
    if held:
        return f" (is {held[0].parent} meant{', or another of the runs there' if held[1:] else ''}?)"
    return ""


def _of_run(path: Path, on_message: Callable[[str], None], *, raw: bool) -> Kept:
    folder = run_of(path)
    if folder is None:
        raise CheckpointError(
            f"{path} is not the folder of a run: it has no {RunFolder(path).recipe.name}{run_meant(path)}"
        )
    run, recipe = RunFolder(folder), load_any(str(folder))
    classes = run.read_classes() if isinstance(recipe, Recipe) else ()
    checkpoint, source = _newest(run, on_message) if path.is_dir() else (load_checkpoint(path), path)
    if raw and checkpoint.averaged is None:
        raise CheckpointError(
            f"{source} has one set of weights: raw ones beside an average are in the numbered checkpoints of a run "
            "with training.ema"
        )
    curve = checkpoint.totals.get("curve")
    trained = Trained(
        recipe=recipe,
        plan=checkpoint.plan,
        classes=classes,
        step=checkpoint.step,
        evaluation=curve[-1]["evaluation"] if curve else None,
    )
    state = checkpoint.model if raw else checkpoint.weights
    return Kept(weights=Weights(state=state, source=f"{source}{', raw' if raw else ''}"), trained=trained)


def _newest(run: RunFolder, on_message: Callable[[str], None]) -> tuple[Checkpoint, Path]:
    found = latest_checkpoint(run.checkpoints)
    if found is None:
        raise CheckpointError(f"{run.path} has no checkpoint yet")
    checkpoint, source, passed = found
    for fault in passed:
        on_message(f"skipped: {fault}")
    return checkpoint, source


def _trained_in(metadata: Mapping[str, str], path: Path) -> Trained:
    """How weights came about, as `vcycle export` wrote it."""
    said = {key.removeprefix(METADATA): value for key, value in metadata.items() if key.startswith(METADATA)}
    recipe = parse_any(said["recipe"], f"the recipe in {path}")
    try:
        classes = json.loads(said["classes"])
        return Trained(
            recipe=recipe,
            plan=Plan.from_json(said["plan"]),
            classes=tuple(map(str, classes)),
            step=int(said["step"]),
            evaluation=json.loads(said["evaluation"]) if "evaluation" in said else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} was exported by another version of vcycle: {error}") from None
