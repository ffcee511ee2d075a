"""From a recipe of super-resolution to what it trains: datasets, model, task, settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from vcycle.plan import Plan
from vcycle.runs.resume_guard import enter
from vcycle.tasks.recognition.data import Progress
from vcycle.tasks.recognition.models.catalog import build_restorer
from vcycle.tasks.superres import Quality, Restoration
from vcycle.tasks.superres.data import Clips
from vcycle.tasks.superres.evaluate import evaluator
from vcycle.tasks.superres.init_weights import initialise
from vcycle.tasks.superres.models.deform import OFFSET_LIMIT, offset_magnitude
from vcycle.tasks.superres.models.roles import role_by_name
from vcycle.tasks.superres.pairs.dataset import PairedDataset
from vcycle.tasks.superres.pairs.layouts import ClipPairs
from vcycle.tasks.superres.recipe import SuperresRecipe
from vcycle.train.callbacks import Callbacks
from vcycle.train.config import EmaSpec, TrainConfig
from vcycle.train.log import Watched
from vcycle.train.ranks import ALONE, Ranks
from vcycle.train.trainer import fit

if TYPE_CHECKING:
    from vcycle.train.outcome import Fitted, Point, StepReport
    from vcycle.train.run import RunFolder

__all__ = ["build_model", "dataset_of", "task_of", "train"]


def build_model(recipe: SuperresRecipe, seed: int) -> nn.Module:
    """The recipe's model, its weights drawn under the seed."""
    torch.manual_seed(seed)
    return build_restorer(recipe.model.name, **recipe.model.options)


def dataset_of(recipe: SuperresRecipe, pairs: ClipPairs) -> PairedDataset:
    """The dataset of some of the recipe's clips."""
    sampling = recipe.sampling
    return PairedDataset(pairs, mirrored=sampling.mirrored, flip=sampling.flip, transpose=sampling.transpose)


def task_of(recipe: SuperresRecipe) -> Restoration:
    """The recipe's task."""
    return Restoration(mirrored=recipe.sampling.mirrored, epsilon=recipe.training.epsilon)


def train(
    recipe: SuperresRecipe,
    plan: Plan,
    clips: Clips,
    run: "RunFolder",
    *,
    seed: int | None = None,
    text: str | None = None,
    resume: bool = False,
    ranks: Ranks = ALONE,
    on_step: "Callable[[StepReport], None]" = lambda _: None,
    on_point: "Callable[[Point], None]" = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> "Fitted":
    """Train a recipe's model under a plan; see `vcycle.train.trainer.fit`.

    Validations tell `on_progress` how far they are: what, how much is done, of how much.
    """
    training, names = recipe.training, {"train": clips.train, "val": clips.val}
    config = TrainConfig(
        run=recipe.run if seed is None else recipe.run.model_copy(update={"seed": seed}),
        loading=recipe.data,
        optimizer=recipe.optimizer,
        # The decay is stated for the baseline's batch, before a larger minibatch.
        ema=None if training.ema is None else EmaSpec(decay=training.ema, clips=training.batch),
        clip_grad_norm=training.clip_grad_norm,
    )
    goes_on = ranks.from_first(lambda: enter(run, recipe, plan, names, text=text, resume=resume))
    model = build_model(recipe, config.run.seed)
    if not goes_on:
        initialise(model, recipe, on_message if ranks.first else lambda _: None)
    return fit(
        config,
        plan=plan,
        model=model,
        dataset=dataset_of(recipe, clips.train),
        objective=task_of(recipe),
        run=run,
        validate=evaluator(recipe, dataset_of(recipe, clips.val), on_message, ranks=ranks, on_progress=on_progress),
        evaluation=Quality,
        role_of=role_by_name(plan.baseline.roles),
        monitor=_offsets,
        callbacks=Callbacks(on_step=on_step, on_validation=on_point, on_message=on_message, on_progress=on_progress),
        resume=resume,
        ranks=ranks,
    )


def _offsets(model: nn.Module) -> Watched | None:
    """How far deformable convolutions reach; beyond tens of pixels they have diverged (EDVR's known failure)."""
    found = offset_magnitude(model)
    if not found:
        return None
    return Watched(
        name="offsets",
        value=torch.stack(list(found.values())).max(),
        limit=OFFSET_LIMIT,
        remedy="deformable convolutions look for pixels further away than they can be, and do not recover: lower "
        "training.lr or lengthen training.warmup, and begin another run, anew or from a checkpoint before it "
        "(init=RUN/checkpoints/FILE)",
    )
