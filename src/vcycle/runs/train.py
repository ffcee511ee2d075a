"""Trains a model of any task in a run folder."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from vcycle.config.recipe import RecipeBase
from vcycle.plan import Plan
from vcycle.runs.evaluate import validator
from vcycle.runs.experiment import Experiment
from vcycle.runs.resume_guard import prepare_run_folder
from vcycle.tasks.base import tasks
from vcycle.tasks.models import is_shipped

if TYPE_CHECKING:
    from vcycle.train.callbacks import Callbacks
    from vcycle.train.config import TrainConfig
    from vcycle.train.outcome import TrainResult
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder

__all__ = ["config_of", "probe_plans", "start", "train"]


def probe_plans(recipe: RecipeBase, classes: int, plans: Iterable[Plan], *, ranks: "Ranks | None" = None) -> None:
    """Try a recipe's model at every shape of some plans; see `vcycle.train.probe.probe`.

    Shipped models are not tried: vcycle's tests run them at the shapes that their constraints allow, and a large one
    would take minutes on a CPU.

    Args:
        recipe: The recipe.
        classes: Number of model outputs, if the task has classes.
        plans: The plans.
        ranks: The ranks that train together.

    Raises:
        UserCodeError: for the first shape that the model fails at.
    """
    if is_shipped(recipe):
        return
    from vcycle.train.probe import probe

    task = tasks[recipe.task]
    probe(
        config_of(recipe),
        lambda: task.prepare_model(task.build_model(recipe, classes, download=False), recipe),
        task.objective(recipe, classes),
        plans,
        ranks=ranks,
    )


def start(
    experiment: Experiment,
    plan: Plan,
    run: "RunFolder",
    *,
    recipe: RecipeBase | None = None,
    resume: bool,
    ranks: "Ranks | None" = None,
) -> bool:
    """Prepare the run folder: record a new run, or check that the existing run can be resumed.

    Args:
        experiment: The recipe and its data.
        plan: The schedule of shapes, batches and LRs.
        run: The run folder.
        recipe: As in `train`.
        resume: Whether to resume the run in the folder.
        ranks: The ranks that train together.

    Returns:
        Whether it resumes.

    Raises:
        CheckpointError: if the run in the folder started with another recipe, plan or data.
        VcycleError: if the folder holds a run and `resume` is not set, or cannot be written.
    """
    from vcycle.train.environment import record_command
    from vcycle.train.ranks import SINGLE_PROCESS

    own, ranks = experiment.recipe if recipe is None else recipe, ranks or SINGLE_PROCESS

    def prepare() -> bool:
        resumed = prepare_run_folder(run, own, plan, experiment.splits, resume=resume)
        if not resumed:
            record_command(run, world=ranks.world, fresh=not resume)
        return resumed

    return ranks.from_first(prepare)


def train(
    experiment: Experiment,
    plan: Plan,
    run: "RunFolder",
    *,
    recipe: RecipeBase | None = None,
    resume: bool = False,
    resumed: bool | None = None,
    ranks: "Ranks | None" = None,
    on_start: Callable[[], None] = lambda: None,
    callbacks: "Callbacks | None" = None,
) -> "TrainResult":
    """Train an experiment's model with a plan; see `vcycle.train.trainer.fit`.

    Args:
        experiment: The recipe and its data.
        plan: The schedule of shapes, batches and LRs.
        run: The run folder.
        recipe: The recipe to train with and to store in the run folder, if it differs from the experiment's: in its
            seed, the plan's name or the path of embedded data.
        resume: Whether to resume the run in the folder.
        resumed: What `start` returned, if the caller has called it.
        ranks: The ranks that train together.
        on_start: Called after the datasets are built, just before training starts.
        callbacks: Receive progress, messages and results.
    """
    from vcycle.train.callbacks import Callbacks
    from vcycle.train.ranks import SINGLE_PROCESS
    from vcycle.train.trainer import fit

    ranks, callbacks = ranks or SINGLE_PROCESS, callbacks or Callbacks()
    own = experiment.recipe if recipe is None else recipe
    task = experiment.task
    if resumed is None:
        resumed = start(experiment, plan, run, recipe=recipe, resume=resume, ranks=ranks)
    own_experiment = experiment if recipe is None else experiment.with_recipe(own)
    on_message = callbacks.on_message if ranks.first else lambda _: None
    model = own_experiment.build_model(initialise=not resumed, on_message=on_message)
    with ranks.one_after_another():  # so that the frame cache is built once
        dataset, evaluator = experiment.dataset("train"), experiment.evaluator("val", "validation")
    if own.run.validate_stage_shape:
        evaluator.at(plan.baseline_shape.shape)  # fails before training if the task has no such evaluation
    on_start()
    return fit(
        config_of(own),
        plan=plan,
        model=model,
        dataset=dataset,
        objective=task.training_objective(own, experiment.splits),
        run=run,
        validate=validator(evaluator, callbacks.on_message, ranks=ranks, on_progress=callbacks.on_progress),
        evaluation=task.result,
        role_of=task.role_of(own),
        monitor=task.monitor,
        callbacks=callbacks,
        balance=task.balance(own, experiment.splits),
        resume=resume or resumed,
        ranks=ranks,
    )


def config_of(recipe: RecipeBase) -> "TrainConfig":
    """The training options of a recipe."""
    from vcycle.train.config import EmaSpec, TrainConfig

    training, decay = recipe.training, recipe.training.ema
    return TrainConfig(
        run=recipe.run,
        loading=recipe.data,
        optimizer=recipe.optimizer,
        # The decay refers to the baseline's batch, before a larger minibatch.
        ema=None if decay is None else EmaSpec(decay=decay, clips=training.batch),
        precise_bn=tasks[recipe.task].precise_bn(recipe),
        clip_grad_norm=training.clip_grad_norm,
        repeats=tasks[recipe.task].repeats(recipe),
    )
