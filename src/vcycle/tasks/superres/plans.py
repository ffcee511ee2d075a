"""Builds super-resolution's plans and their baseline from a recipe. Imports no torch."""

from dataclasses import replace

from vcycle import plan as planning
from vcycle.errors import PlanError, RecipeError
from vcycle.plan import Baseline, CosineDecay, FactorWarmup, Plan, Role
from vcycle.plan.superresolution import NESTINGS
from vcycle.registry import Registry
from vcycle.tasks.memory import check_extent
from vcycle.tasks.plans import PlanSpec
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.recipe import FactorWarmupSection, MinibatchSection, StagePlan, SuperresRecipe
from vcycle.tasks.superres.scale import SCALE

__all__ = ["PLANS", "baseline_of", "check_plan", "never_learning", "raw_frames"]

PLANS: Registry[PlanSpec] = Registry("plan", "vcycle.plans.superresolution")


def _constant(recipe: SuperresRecipe, baseline: Baseline, options: None, factor: float | None) -> Plan:
    return planning.constant(baseline, epoch_factor=factor or 1.0)


def _baseline(recipe: SuperresRecipe, baseline: Baseline, options: None, factor: float | None) -> Plan:
    """The constant shape without the larger minibatch and its warmup."""
    if recipe.training.minibatch.factor > 1:
        update = {"minibatch": MinibatchSection(), "warmup": None}
        recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update=update)})
        baseline = baseline_of(recipe, baseline.clips)
    return _constant(recipe, baseline, options, factor)


def _nested(nesting: str, *, scaled: bool) -> PlanSpec:
    def build(recipe: SuperresRecipe, baseline: Baseline, options: StagePlan, factor: float | None) -> Plan:
        return planning.superresolution(
            baseline,
            nesting=nesting,
            sizes=getattr(options, "sizes", None),
            frames=getattr(options, "frames", None),
            mirrored=recipe.sampling.mirrored,
            batch="scaled" if scaled else "constant",
            lr_scaling=options.lr_scaling,
            stage_lrs=options.stage_lrs,
            epoch_factor=factor or 1.0,
            **MODELS.multiples_of(recipe.model, baseline),
        )

    return PlanSpec(build=build, section=nesting)


PLANS.register("constant", PlanSpec(build=_constant, section="constant"))
PLANS.register("baseline", PlanSpec(build=_baseline, section="baseline"))
for _name in NESTINGS:
    PLANS.register(_name, _nested(_name, scaled=False))
for _name in NESTINGS:
    PLANS.register(f"{_name}+scaled", _nested(_name, scaled=True))


def baseline_of(recipe: SuperresRecipe, clips: int | None = None) -> Baseline:
    """The recipe's baseline, with the larger minibatch.

    Args:
        recipe: The recipe.
        clips: Length of the training set; an epoch has as many samples unless the recipe sets another number.

    Raises:
        RecipeError: if the samples per epoch are unknown, or the training is too short for its warmup.
        PlanError: if the baseline's values contradict each other.
    """
    t = recipe.training
    epoch = recipe.data.epoch or clips
    if epoch is None:
        raise RecipeError(
            "the length of the training set is unknown: give the clips (data=FOLDER) or the samples per epoch "
            "(data.epoch=26600)"
        )
    if recipe.sampling.mirrored and t.frames % 2:
        raise RecipeError(
            f"training.frames is {t.frames}, but sampling.mirrored needs an even number: the second half of a clip is "
            "the first one reversed"
        )
    plain = Baseline(
        batch=t.batch,
        frames=t.frames,
        size=t.size,
        clips=epoch,
        lr=t.lr,
        steps=t.steps,
        decay=CosineDecay(floor=t.lr_floor),
        roles=_roles(recipe),
    )
    warmup = _warmup(t.warmup)
    if t.minibatch.factor == 1:
        enlarged = replace(plain, warmup=warmup)
    else:
        enlarged = planning.large_minibatch(
            plain,
            t.minibatch.factor,
            scale_lr=t.minibatch.scale_lr,
            shorten=t.minibatch.shorten,
            warmup=warmup,
        )
    if warmup is not None and warmup.steps >= enlarged.length:
        raise RecipeError(
            f"training.warmup.steps is {warmup.steps:,}, not below the training's {enlarged.total_steps:,} steps: set "
            "fewer, or no warmup: training.warmup=null"
        )
    return enlarged


def check_plan(recipe: SuperresRecipe, plan: Plan) -> None:
    """Check a plan against the shape constraints of the recipe's model. Imports no torch.

    Raises:
        PlanError: if the model does not support a shape; names the first such stage and step.
        RecipeError: for an unknown model or option.
    """
    wanted = MODELS.needs_of(recipe.model)
    plan.require(wanted, recipe.model.name)
    check_extent(plan, scale=SCALE)
    if wanted.window is not None and recipe.sampling.mirrored:
        raise PlanError(
            f"model {recipe.model.name!r} takes windows of {wanted.window} frames and does not support mirrored clips: "
            "set sampling.mirrored=false"
        )


def never_learning(recipe: SuperresRecipe, plan: Plan) -> list[str]:
    """Warn about parts of the model that are frozen for all steps of a plan."""
    return [
        f"training.{name}.frozen_steps={getattr(recipe.training, name).frozen_steps} covers all {len(plan):,} steps of "
        f"plan {plan.name}: this part is never trained"
        for name, role in plan.baseline.roles.items()
        if role.frozen_until * plan.baseline.batch >= plan.samples
    ]


def raw_frames(recipe: SuperresRecipe) -> int:
    """Number of source frames per clip at the full shape."""
    return recipe.training.frames // (2 if recipe.sampling.mirrored else 1)


def _roles(recipe: SuperresRecipe) -> dict[str, Role]:
    training, name = recipe.training, recipe.model.name
    sections = (
        ("flow", training.flow, "flow network"),
        ("backbone", training.backbone, "attention to train on top of it"),
    )
    if not any(section for _, section, _ in sections):
        return {}
    spec = MODELS.find(name)
    options, roles = spec.read_options(name, recipe.model.options), {}
    for role, section, what in sections:
        if section is None:
            continue
        if role not in spec.roles or not spec.roles[role].present(options):
            raise RecipeError(f"training.{role} is set, but model {name} has no {what}: set training.{role}=null")
        roles[role] = Role(multiplier=section.lr_factor, frozen_until=section.frozen_steps)
    return roles


def _warmup(section: FactorWarmupSection | None) -> FactorWarmup | None:
    return None if section is None else FactorWarmup(steps=section.steps, law=section.law, factor=section.factor)
