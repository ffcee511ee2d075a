"""Reads saved weights and their provenance from a run folder, a checkpoint or an exported file."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcycle.config.recipe import RecipeBase
from vcycle.errors import CheckpointError
from vcycle.nn.weights.config import weights_file
from vcycle.nn.weights.files import Weights, read_weights
from vcycle.plan import Plan
from vcycle.tasks.base import tasks
from vcycle.tasks.recipes import load_recipe, parse_recipe
from vcycle.train.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint
from vcycle.train.run import RunFolder
from vcycle.utils.reading import resolved, safetensors_metadata

__all__ = [
    "METADATA",
    "Provenance",
    "SavedWeights",
    "is_exported",
    "read_saved",
    "refuse_untrained",
    "run_meant",
    "run_of",
]

METADATA = "vcycle."
"""Prefix of vcycle's metadata keys in a safetensors file."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a model was trained."""

    recipe: RecipeBase
    """The resolved recipe that it was trained with."""
    plan: Plan
    """The plan that it was trained with."""
    classes: tuple[str, ...]
    """Class names, in the order of its outputs; empty for a task without classes."""
    step: int
    """Number of training steps."""
    evaluation: Mapping[str, Any] | None = None
    """Its last validation during training: metrics and protocol."""


@dataclass(frozen=True, kw_only=True)
class SavedWeights:
    """Weights with their provenance, if known."""

    weights: Weights
    trained: Provenance | None


def read_saved(path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False) -> SavedWeights:
    """Read weights, with their provenance if known.

    Args:
        path: A run folder (its newest readable checkpoint is read), a checkpoint of a run, any weights file, or a
            folder that transformers wrote.
        on_message: Called with each checkpoint that cannot be read and is skipped.
        raw: Whether to read the raw weights of a run that also stores their average (EMA).

    Raises:
        CheckpointError: if the weights are missing or cannot be read, or `raw` is set and there is no average.
        RecipeError: if their recipe cannot be read.
    """
    if (path.is_dir() and weights_file(path) is None) or run_of(path) is not None:
        return _of_run(path, on_message, raw=raw)
    if raw:
        raise CheckpointError(
            f"{path} is not of a run with training.ema: only checkpoints of such a run have raw weights"
        )
    weights = read_weights(path)
    own = f"{METADATA}recipe" in weights.metadata
    return SavedWeights(weights=weights, trained=_trained_in(weights.metadata, path) if own else None)


def is_exported(path: Path) -> bool:
    """Whether `vcycle export` wrote a file. Its tensors are not read."""
    return f"{METADATA}recipe" in safetensors_metadata(path)


def run_of(path: Path) -> Path | None:
    """The run folder of a path that is a run folder or a checkpoint of a run; None for other paths."""
    if path.is_dir():
        return path if RunFolder(path).recipe.is_file() else None
    whole = resolved(path)
    run = RunFolder(whole.parent.parent)
    return run.path if run.recipe.is_file() and whole.parent == run.checkpoints else None


def refuse_untrained(path: Path, origin: str, step: int) -> None:
    """Refuse a model from before its first step.

    Raises:
        CheckpointError: saying how to train it.
    """
    if step == 0:
        remedy = f"; `vcycle train {path} --resume` trains it" if path.is_dir() else ""
        raise CheckpointError(f"the model in {path} is untrained: {origin} is from step 0{remedy}")


def run_meant(path: Path) -> str:
    """Suggest the run of a checkpoint or checkpoint folder, or the runs in a folder; a suffix for messages."""
    for folder in (path.parent, path.parent.parent):
        run = RunFolder(folder)
        if run.recipe.is_file() and (path == run.checkpoints or path.parent == run.checkpoints):
            return f" (did you mean {folder}?)"
    held = [run for inner in (".", "runs") for run in sorted((path / inner).glob(f"*/{RunFolder(path).recipe.name}"))]
    if held:
        return f" (did you mean {held[0].parent}{' or another run there' if held[1:] else ''}?)"
    return ""


def _sharded(path: Path) -> str:
    """What to do about weights in several files; a suffix for messages, empty if a folder has none."""
    found = next(path.glob("*.index.json"), None)
    if found is None:
        return ""
    return f" ({found.name} lists several: save them with save_pretrained(..., max_shard_size='100GB'))"


def _of_run(path: Path, on_message: Callable[[str], None], *, raw: bool) -> SavedWeights:
    folder = run_of(path)
    if folder is None:
        meant = run_meant(path) or f", nor weights that transformers saved in one file{_sharded(path)}"
        raise CheckpointError(f"{path} is not the folder of a run: it has no {RunFolder(path).recipe.name}{meant}")
    run, recipe = RunFolder(folder), load_recipe(str(folder))
    classes = run.read_classes() if tasks[recipe.task].outputs(recipe) else ()
    checkpoint, source = _newest(run, on_message) if path.is_dir() else (load_checkpoint(path), path)
    if raw and checkpoint.averaged is None:
        raise CheckpointError(
            f"{source} has no separate raw weights: only numbered checkpoints of a run with training.ema store them "
            "beside the average"
        )
    curve = checkpoint.totals.get("curve")
    trained = Provenance(
        recipe=recipe,
        plan=checkpoint.plan,
        classes=classes,
        step=checkpoint.step,
        evaluation=curve[-1]["evaluation"] if curve else None,
    )
    state = checkpoint.model if raw else checkpoint.weights
    return SavedWeights(weights=Weights(state=state, source=f"{source}{', raw' if raw else ''}"), trained=trained)


def _newest(run: RunFolder, on_message: Callable[[str], None]) -> tuple[Checkpoint, Path]:
    found = latest_checkpoint(run.checkpoints)
    if found is None:
        raise CheckpointError(f"{run.path} has no checkpoint yet")
    checkpoint, source, passed = found
    for fault in passed:
        on_message(f"skipped: {fault}")
    return checkpoint, source


def _trained_in(metadata: Mapping[str, str], path: Path) -> Provenance:
    """The provenance of weights from the metadata of `vcycle export`."""
    said = {key.removeprefix(METADATA): value for key, value in metadata.items() if key.startswith(METADATA)}
    recipe = parse_recipe(said["recipe"], f"the recipe in {path}")
    try:
        classes = json.loads(said["classes"])
        return Provenance(
            recipe=recipe,
            plan=Plan.from_json(said["plan"]),
            classes=tuple(map(str, classes)),
            step=int(said["step"]),
            evaluation=json.loads(said["evaluation"]) if "evaluation" in said else None,
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} was exported by another version of vcycle: {error}") from None
