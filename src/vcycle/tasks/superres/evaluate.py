"""From a recipe of super-resolution to an evaluation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from vcycle.data import Replacement
from vcycle.errors import CheckpointError, RecipeError
from vcycle.plan import Shape, rank_slice
from vcycle.runs.loaded_model import read_kept, refuse_untrained
from vcycle.tasks.recipes import AnyRecipe
from vcycle.tasks.recognition.data import Progress
from vcycle.tasks.recognition.weights.loading import check_values
from vcycle.tasks.superres import Measured, Measuring, Protocol, Quality, quality_of, restore_each
from vcycle.tasks.superres.init_weights import initialise
from vcycle.tasks.superres.pairs.dataset import PairedDataset
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.tasks.superres.weights.keys import dialect_of, to_ours
from vcycle.train.checkpoint import load_weights
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.validation import Evaluator

__all__ = ["Opened", "evaluator", "measured", "measuring_of", "open_initial", "open_run"]


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
    """Steps that it was trained for; 0 where that is not known."""


def measuring_of(recipe: SuperresRecipe) -> Measuring:
    """How the recipe measures clips."""
    e = recipe.evaluation
    return Measuring(
        protocol=Protocol(channels=e.channels, crop=e.crop, frames=e.frames),
        mirrored=recipe.sampling.mirrored,
        chunk=e.chunk,
        overlap=e.overlap,
        precision=recipe.run.precision,
    )


def measured(
    recipe: SuperresRecipe,
    dataset: PairedDataset,
    model: nn.Module,
    device: torch.device,
    *,
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Iterator[Measured | Replacement]:
    """Restore and measure a rank's share of the clips; ranks may be more than clips. See `restore_each`."""
    share = rank_slice(len(dataset), 1, rank, world)
    yield from restore_each(model, dataset, share, device=device, measuring=measuring_of(recipe), progress=progress)


def evaluator(
    recipe: SuperresRecipe,
    dataset: PairedDataset,
    on_message: Callable[[str], None] = lambda _: None,
    *,
    ranks: Ranks = ALONE,
    on_progress: Progress = lambda *_: None,
) -> Evaluator:
    """A function that evaluates a model during training: on a few whole clips, or on their middle at a shape.

    Args:
        recipe: The recipe.
        dataset: The validation clips.
        on_message: Told of each clip that cannot be read, once.
        ranks: The ranks that evaluate together, each its share of the clips; all of them find the same.
        on_progress: Told how far each evaluation is.
    """
    wanted = min(recipe.evaluation.validation_clips, len(dataset))
    few = [place * len(dataset) // wanted for place in range(wanted)]
    measuring = measuring_of(recipe)
    named: set[int] = set()

    def evaluate(model: nn.Module, device: torch.device, /, shape: Shape | None = None) -> Quality:
        share = rank_slice(len(few), 1, ranks.rank, ranks.world)
        own = [few[place] for place in share]
        tell = partial(on_progress, "restoring frames")
        found = restore_each(model, dataset, own, device=device, measuring=measuring, shape=shape, progress=tell)
        return ranks.pooled(list(found), judge)

    def judge(found: list[Measured | Replacement]) -> Quality:
        for bad in found:
            if isinstance(bad, Replacement) and bad.video not in named:
                named.add(bad.video)
                on_message(f"bad clip {bad.path}: {bad.cause}; left out of the evaluation")
        return quality_of(found, measuring)

    return evaluate


def open_initial(recipe: AnyRecipe, on_message: Callable[[str], None] = lambda _: None) -> Opened:
    """A recipe's network with the weights that the recipe begins with, such as published ones.

    Raises:
        RecipeError: if the recipe names none, or is of another task.
        CheckpointError: if they cannot be read, do not fit, or are not all of the network's.
    """
    from vcycle.tasks.superres.build import build_model

    if not isinstance(recipe, SuperresRecipe):
        raise RecipeError(f"key 'task' is {recipe.task}: superresolution is accepted")
    if recipe.init.path is None:
        raise RecipeError(
            "a recipe's network is untrained: give the folder of a run, what `vcycle export` wrote, or a whole "
            "network's weights by init=FILE"
        )
    model = build_model(recipe, recipe.run.seed)
    if not initialise(model, recipe, on_message):
        raise CheckpointError(f"weights {recipe.init.path} are not all of model {recipe.model.name}'s")
    return Opened(model=model.eval(), recipe=recipe, origin=recipe.init.path, step=0)


def open_run(path: Path, on_message: Callable[[str], None] = lambda _: None, *, raw: bool = False) -> Opened:
    """Open a trained network.

    Args:
        path: The folder of a run, of which the newest readable checkpoint is taken, one of its checkpoints, or what
            `vcycle export` wrote; averaged weights where there are some.
        on_message: Told of checkpoints that cannot be read and are passed over.
        raw: Whether to take the weights themselves all the same.

    Raises:
        CheckpointError: if there is none that was trained, it does not fit its recipe, or its weights are no numbers to
            compute with.
        RecipeError: if its recipe cannot be read.
    """
    from vcycle.tasks.superres.build import build_model

    kept = read_kept(path, on_message, raw=raw)
    trained, source = kept.trained, kept.weights.source
    if trained is None:
        raise CheckpointError(
            f"{path} holds weights and does not say of which recipe: the folder of a run or a file that vcycle export "
            "wrote is accepted"
        )
    recipe = trained.recipe
    if not isinstance(recipe, SuperresRecipe):
        raise CheckpointError(
            f"{path} is a model of {recipe.task}, which restores nothing: `vcycle eval` and `predict` take it"
        )
    refuse_untrained(path, source, trained.step)
    state = dict(kept.weights.state)
    if dialect_of(state) in ("basicsr", "mmagic"):
        state = {ours: state[theirs] for theirs, ours in (to_ours(state) or {}).items()}
    model = build_model(recipe, recipe.run.seed)
    own = model.state_dict()
    check_values({key: value for key, value in state.items() if key in own}, own, source)
    load_weights(model, state, Path(source))
    return Opened(model=model.eval(), recipe=recipe, origin=source, step=trained.step)
