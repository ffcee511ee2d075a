"""A training in a run's folder, of any task."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from vcycle.config.recipe import RecipeBase
from vcycle.plan import Plan
from vcycle.runs.evaluate import validator
from vcycle.runs.experiment import Experiment
from vcycle.runs.resume_guard import prepare_run_folder
from vcycle.tasks.base import Progress
from vcycle.tasks.recipes import dump_recipe

if TYPE_CHECKING:
    from vcycle.train.outcome import Fitted, Point, StepReport
    from vcycle.train.ranks import Ranks
    from vcycle.train.run import RunFolder
    from vcycle.train.settings import Settings

__all__ = ["settings_of", "start", "train"]


def start(
    experiment: Experiment,
    plan: Plan,
    run: "RunFolder",
    *,
    recipe: RecipeBase | None = None,
    resume: bool,
    ranks: "Ranks | None" = None,
) -> bool:
    """Enter the run's folder: write down what starts, or check that what is there can be resumed.

    Args:
        experiment: The recipe and its data.
        plan: What is to be done at every step.
        run: The run's folder.
        recipe: As in `train`.
        resume: Whether to resume what the folder holds.
        ranks: The ranks that train together.

    Returns:
        Whether it resumes.

    Raises:
        CheckpointError: if the folder's run started with anything else.
        VcycleError: if it holds a run that is not to be resumed, or cannot be written.
    """
    from vcycle.train.ranks import ALONE

    own = experiment.recipe if recipe is None else recipe
    return (ranks or ALONE).from_first(lambda: prepare_run_folder(run, own, plan, experiment.splits, resume=resume))


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
    on_step: "Callable[[StepReport], None]" = lambda _: None,
    on_point: "Callable[[Point], None]" = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> "Fitted":
    """Train an experiment's model under a plan; see `vcycle.train.loop.fit`.

    Args:
        experiment: The recipe and its data.
        plan: What to do at every step.
        run: The run's folder.
        recipe: What is trained by and written beside the run, where it differs from the experiment's: in its seed,
            the plan's name and where embedded data is.
        resume: Whether to resume what the folder holds.
        resumed: What `start` returned, where the caller has called it.
        ranks: The ranks that train together.
        on_start: Called when the datasets are made, and training is about to start.
        on_step: Called with every step.
        on_point: Called with every validation.
        on_message: Called with what a user should know.
        on_progress: Called with how far a validation is.
    """
    from vcycle.train.ema import EmaSpec
    from vcycle.train.loop import fit
    from vcycle.train.optimizer import OptimizerSpec
    from vcycle.train.ranks import ALONE

    ranks = ranks or ALONE
    own = experiment.recipe if recipe is None else recipe
    task, classes = experiment.task, experiment.classes
    if resumed is None:
        resumed = start(experiment, plan, run, recipe=recipe, resume=resume, ranks=ranks)
    own_experiment = experiment if recipe is None else experiment.with_recipe(own)
    model = own_experiment.build_model(initialise=not resumed, on_message=on_message if ranks.first else lambda _: None)
    with ranks.one_after_another():  # a cache of frames is built once
        dataset, evaluator = experiment.dataset("train"), experiment.evaluator("val")
    decay = own.training.ema
    on_start()
    return fit(
        plan=plan,
        model=model,
        dataset=dataset,
        task=task.objective(own, len(classes)),
        optimizer=OptimizerSpec(**own.optimizer.model_dump()),
        run=run,
        settings=settings_of(own),
        recipe=dump_recipe(own),
        classes=classes or None,
        precise_bn=task.precise_bn(own),
        # The decay is stated for the baseline's batch, before a larger minibatch.
        ema=None if decay is None else EmaSpec(decay=decay, clips=own.training.batch),
        role_of=task.role_of(own),
        watch=task.monitor,
        resume=resume or resumed,
        ranks=ranks,
        validate=validator(evaluator, on_message, ranks=ranks, on_progress=on_progress),
        evaluation=task.result,
        on_step=on_step,
        on_point=on_point,
        on_message=on_message,
    )


def settings_of(recipe: RecipeBase) -> "Settings":
    """How the recipe's run is carried out."""
    from vcycle.train.loop import Settings

    return Settings(
        **recipe.run.model_dump(),
        workers=recipe.data.workers,
        timeout=recipe.data.timeout,
        prefetch=recipe.data.prefetch,
    )
