"""From a recipe of super-resolution to an evaluation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from vcycle.data import PairedDataset, Replacement, rank_slice
from vcycle.errors import CheckpointError
from vcycle.recipes.load import load_any
from vcycle.recipes.superres.schema import SuperresRecipe
from vcycle.tasks.superres import Measured, Measuring, Protocol, Quality, quality_of, restore_each
from vcycle.train.checkpoint import latest_checkpoint, load_weights
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.run import RunFolder

__all__ = ["Opened", "evaluator", "measured", "measuring_of", "open_run"]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A trained network."""

    model: nn.Module
    """In evaluation mode, on the CPU."""
    recipe: SuperresRecipe
    """The recipe that it was trained by."""
    origin: str
    """The file of its weights."""
    step: int
    """Steps that it was trained for."""


def measuring_of(recipe: SuperresRecipe) -> Measuring:
    """How the recipe measures clips."""
    e = recipe.evaluation
    return Measuring(
        protocol=Protocol(channels=e.channels, crop=e.crop, frames=e.frames),
        mirrored=recipe.sampling.mirrored,
        chunk=e.chunk,
        overlap=e.overlap,
    )


def measured(
    recipe: SuperresRecipe,
    dataset: PairedDataset,
    model: nn.Module,
    device: torch.device,
    *,
    rank: int = 0,
    world: int = 1,
) -> Iterator[Measured | Replacement]:
    """Restore and measure a rank's share of the clips; ranks may be more than clips."""
    share = rank_slice(len(dataset), 1, rank, world)
    yield from restore_each(model, dataset, share, device=device, measuring=measuring_of(recipe))


def evaluator(
    recipe: SuperresRecipe,
    dataset: PairedDataset,
    on_message: Callable[[str], None] = lambda _: None,
    *,
    ranks: Ranks = ALONE,
) -> Callable[[nn.Module, torch.device], Quality]:
    """A function that evaluates a model during training, on a few whole clips.

    Args:
        recipe: The recipe.
        dataset: The validation clips.
        on_message: Told of each clip that cannot be read, once.
        ranks: The ranks that evaluate together, each its share of the clips; all of them find the same.
    """
    wanted = min(recipe.evaluation.validation_clips, len(dataset))
    few = [place * len(dataset) // wanted for place in range(wanted)]
    measuring = measuring_of(recipe)
    named: set[int] = set()

    def evaluate(model: nn.Module, device: torch.device) -> Quality:
        share = rank_slice(len(few), 1, ranks.rank, ranks.world)
        own = [few[place] for place in share]
        shares = ranks.gather(list(restore_each(model, dataset, own, device=device, measuring=measuring)))
        return ranks.from_first(lambda: judge([found for share in shares or () for found in share]))

    def judge(found: list[Measured | Replacement]) -> Quality:
        for bad in found:
            if isinstance(bad, Replacement) and bad.video not in named:
                named.add(bad.video)
                on_message(f"bad clip {bad.path}: {bad.cause}; left out of the evaluation")
        return quality_of(found, measuring)

    return evaluate


def open_run(path: Path, on_message: Callable[[str], None] = lambda _: None) -> Opened:
    """Open the network of a run: the newest readable checkpoint's, averaged where there is an average.

    Raises:
        CheckpointError: if it has none that was trained, or it does not fit.
        RecipeError: if its recipe cannot be read, or is of another task.
    """
    from vcycle.recipes.superres.build import build_model

    recipe = load_any(str(path))
    if not isinstance(recipe, SuperresRecipe):
        raise CheckpointError(f"{path} is a run of {recipe.task}: one of super-resolution is accepted")
    found = latest_checkpoint(RunFolder(path).checkpoints)
    if found is None:
        raise CheckpointError(f"{path} has no checkpoint yet")
    checkpoint, source, passed = found
    for fault in passed:
        on_message(f"passed over: {fault}")
    if checkpoint.step == 0:
        raise CheckpointError(
            f"the model in {path} is untrained: {source} is from before its first step; `vcycle train {path} --resume` "
            "trains it"
        )
    model = build_model(recipe, recipe.run.seed)
    load_weights(model, checkpoint.weights, source)
    return Opened(model=model.eval(), recipe=recipe, origin=str(source), step=checkpoint.step)
