"""Builds the plans of classification and their baseline from a recipe. Imports no torch."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from vcycle import plan as planning
from vcycle.errors import RecipeError
from vcycle.plan import Baseline, CosineDecay, NoDecay, Plan, RampWarmup, Scale, StepDecay
from vcycle.plan.recognition import LONG_SHAPES, SHORT_SIZES, SPACE_FIRST
from vcycle.plan.shape import FULL
from vcycle.registry import Registry
from vcycle.tasks.classification.plan_options import CascadePlan, ConstantPlan, LongPlan, MultigridPlan, ShortPlan
from vcycle.tasks.classification.recipe import ClassificationRecipe, DecaySection, TrainingBase, WarmupSection
from vcycle.tasks.models import models_of
from vcycle.tasks.plans import PlanSpec

__all__ = ["baseline_of", "lengthened", "plans_for"]

_OFTEN = 100
"""Epochs from which a training of few clips is worth a word."""
_MANY = 1_000
"""Number of clips from which it is not: recipes of large sets train for 200 epochs."""


def baseline_of(recipe: ClassificationRecipe, clips: int | None = None) -> Baseline:
    """The recipe's baseline, for a training set of `clips` samples.

    Raises:
        RecipeError: if the length of the training set is unknown, or the training is too short for its warmup or
            milestones.
        PlanError: if the baseline's values contradict each other.
    """
    clips = _clips(recipe, clips)
    _check_lengths(recipe.training)
    t = _long_enough(recipe.training, clips)
    return Baseline(
        batch=t.batch,
        frames=recipe.shape.frames,
        size=t.size,
        clips=clips,
        lr=t.lr,
        lr_batch=t.lr_batch,
        epochs=t.epochs,
        steps=t.steps,
        decay=_decay(t.decay),
        warmup=_warmup(t.warmup),
        bn_batch=t.bn_batch,
    )


def lengthened(recipe: ClassificationRecipe, clips: int | None = None) -> str | None:
    """A note if few clips are trained on for many epochs, or `training.min_steps` makes the training longer.

    It says how many epochs, why, and what to change. None otherwise.
    """
    training, clips = recipe.training, _clips(recipe, clips)
    longer = _long_enough(training, clips).epochs
    epochs = longer if longer is not None else (training.steps or 0) * training.batch / clips
    often = f", each of {clips:,} clips as often" if epochs >= _OFTEN else ""
    if training.epochs is not None and longer is not None and longer > training.epochs:
        return (
            f"training.min_steps={training.min_steps}: the baseline is {longer:.4g} epochs long{often}, because "
            f"training.epochs={training.epochs:g} gives fewer steps with so little data; training.min_steps=null keeps "
            f"{training.epochs:g} epochs"
        )
    if not often or clips >= _MANY:
        return None
    key = "epochs" if longer is not None else "steps"
    return (
        f"training.{key}={getattr(training, key):g}: the baseline is {epochs:.4g} epochs long{often}; more videos, "
        f"augmentation or trained weights (init=FILE) help more than so many, and fewer training.{key} take less time"
    )


def _clips(recipe: ClassificationRecipe, clips: int | None) -> int:
    """The length of the training set."""
    clips = clips if clips is not None else recipe.data.clips
    if clips is None:
        raise RecipeError(
            "the length of the training set is unknown: give the data (data=FOLDER), or its number of clips to plan "
            "without it (data.clips=N)"
        )
    return clips


def _long_enough(training: TrainingBase, clips: int) -> TrainingBase:
    """Lengthen the training to its minimum number of steps; scale milestones and warmup along."""
    if training.epochs is None or training.min_steps is None:
        return training
    stretch = training.min_steps * training.batch / (training.epochs * clips)
    if stretch <= 1:
        return training
    update: dict[str, object] = {"epochs": training.epochs * stretch}
    milestones = tuple(milestone * stretch for milestone in training.decay.milestones)
    update["decay"] = training.decay.model_copy(update={"milestones": milestones})
    if training.warmup is not None:
        update["warmup"] = training.warmup.model_copy(update={"length": training.warmup.length * stretch})
    return training.model_copy(update=update)


def _constant(recipe: ClassificationRecipe, baseline: Baseline, options: ConstantPlan, factor: float | None) -> Plan:
    return planning.constant(
        baseline,
        shape=FULL if options.shape is None else Scale.of(*options.shape),
        epoch_factor=factor or options.epoch_factor,
        steps=options.steps if factor is None else None,
        lr_scaling=options.lr_scaling,
        **models_of(recipe.task).multiples_of(recipe.model, baseline),
    )


def _long_short(recipe: ClassificationRecipe, baseline: Baseline, options: MultigridPlan, factor: float | None) -> Plan:
    return _long_cycles(recipe, baseline, options, factor, _short_sizes(options))


def _long(recipe: ClassificationRecipe, baseline: Baseline, options: LongPlan, factor: float | None) -> Plan:
    return _long_cycles(recipe, baseline, options, factor, ())


def _long_cycles(
    recipe: ClassificationRecipe,
    baseline: Baseline,
    options: LongPlan,
    factor: float | None,
    short_sizes: Sequence[Fraction],
) -> Plan:
    return planning.multigrid(
        baseline,
        long_shapes=_scales(options.long_shapes, LONG_SHAPES, baseline),
        short_sizes=short_sizes,
        epoch_factor=factor or options.epoch_factor,
        steps=options.steps if factor is None else None,
        cycles=options.cycles,
        fine_tune=options.fine_tune,
        lr_scaling=options.lr_scaling,
        **models_of(recipe.task).multiples_of(recipe.model, baseline),
    )


def _short(recipe: ClassificationRecipe, baseline: Baseline, options: ShortPlan, factor: float | None) -> Plan:
    return planning.multigrid(
        baseline,
        long_shapes=(),
        short_sizes=_short_sizes(options),
        epoch_factor=factor or options.epoch_factor,
        steps=options.steps if factor is None else None,
        **models_of(recipe.task).multiples_of(recipe.model, baseline),
    )


def _cascade(recipe: ClassificationRecipe, baseline: Baseline, options: CascadePlan, factor: float | None) -> Plan:
    return planning.cascade(
        baseline,
        shapes=_scales(options.shapes, SPACE_FIRST, baseline),
        weights=options.weights,
        epoch_factor=factor or options.epoch_factor,
        steps=options.steps if factor is None else None,
        lr_scaling=options.lr_scaling,
        batch_growth=options.batch_growth,
        finish=options.finish,
        **models_of(recipe.task).multiples_of(recipe.model, baseline),
    )


def plans_for(task: str) -> Registry[PlanSpec]:
    """The plans of a task that classifies clips."""
    plans: Registry[PlanSpec] = Registry("plan", f"vcycle.plans.{task}")
    builders: dict[str, Callable[[Any, Baseline, Any, float | None], Plan]] = {
        "constant": _constant,
        "long+short": _long_short,
        "long": _long,
        "short": _short,
        "cascade": _cascade,
    }
    for name, build in builders.items():
        plans.register(name, PlanSpec(build=build, section=name.replace("+", "_")))
    return plans


def _check_lengths(training: TrainingBase) -> None:
    """Refuse a training that ends before its warmup or last milestone, usually one shortened for a test."""
    unit, length = ("epochs", training.epochs) if training.epochs is not None else ("steps", training.steps)
    if length is None or (training.epochs is not None and training.steps is not None):
        given = f"{training.epochs} and training.steps is {training.steps}".replace("None", "null")
        raise RecipeError(
            f"training.epochs is {given}: set exactly one of the two and the other to null: training.epochs=null or "
            "training.steps=null"
        )
    asked = f"training.{unit}={length:g}"
    warmup = 0.0 if training.warmup is None else training.warmup.length
    if warmup >= length:
        raise RecipeError(
            f"training.warmup.length is {warmup:g} {unit}, longer than the training ({asked}): set a shorter warmup, "
            f"such as training.warmup.length={length / 10:g}, or none: training.warmup=null"
        )
    last = training.decay.milestones[-1:]
    if training.decay.law == "steps" and last and last[0] >= length:
        scaled = ", ".join(f"{length * milestone / last[0] * 0.8:.3g}" for milestone in training.decay.milestones)
        raise RecipeError(
            f"training.decay.milestones: milestone {last[0]:g} is at or after the end of training ({asked}): set "
            f"earlier milestones, such as 'training.decay.milestones=[{scaled}]', or another LR schedule: "
            "training.decay=cosine"
        )


def _warmup(section: WarmupSection | None) -> RampWarmup | None:
    if section is None or section.length == 0:
        return None
    return RampWarmup(length=section.length, start_lr=section.start_lr)


def _short_sizes(options: ShortPlan) -> Sequence[Fraction]:
    return SHORT_SIZES if options.short_sizes is None else [Scale.of(1, side).area for side in options.short_sizes]


def _scales(given: Sequence[Sequence[float]] | None, default: Sequence[Scale], baseline: Baseline) -> Sequence[Scale]:
    """The scales of a recipe, or the default ones. Those of images shrink the side alone, each side once."""
    if given is not None:
        return Scale.each(given)
    if baseline.frames > 1:
        return default
    return list(dict.fromkeys(Scale(FULL.time, scale.area) for scale in default))


def _decay(section: DecaySection) -> StepDecay | CosineDecay | NoDecay:
    if section.law == "steps":
        return StepDecay(milestones=section.milestones, gamma=section.gamma, factors=section.factors)
    return CosineDecay(floor=section.floor) if section.law == "cosine" else NoDecay()
