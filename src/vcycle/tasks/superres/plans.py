"""From a recipe of super-resolution to its plans. Needs no torch."""

from dataclasses import replace

from vcycle import plan as planning
from vcycle.errors import PlanError, RecipeError, did_you_mean
from vcycle.plan import Baseline, CosineDecay, FactorWarmup, Plan, Role
from vcycle.plan.superresolution import NESTINGS
from vcycle.tasks.recognition.plans import factor_of, named_by
from vcycle.tasks.superres.models import MODELS
from vcycle.tasks.superres.recipe import FactorWarmupSection, MinibatchSection, SuperresRecipe

__all__ = [
    "PLAN_NAMES",
    "baseline_of",
    "check_name",
    "check_plan",
    "plan_of",
    "raw_frames",
]

PLAN_NAMES = ("constant", "baseline", *NESTINGS)
_CONTROL, _SCALED = "control:", "+scaled"


def check_name(name: str) -> None:
    """Check that there is such a plan, whatever the recipe.

    Raises:
        RecipeError: naming those that there are.
    """
    _parts(name)


def baseline_of(recipe: SuperresRecipe, clips: int | None = None) -> Baseline:
    """The recipe's baseline, its minibatch enlarged.

    Args:
        recipe: The recipe.
        clips: Length of the training set, which is an epoch's where the recipe names no other.

    Raises:
        RecipeError: if an epoch's samples are not known, or the training is too short for its warm-up.
        PlanError: if the baseline's values contradict each other.
    """
    t = recipe.training
    epoch = recipe.data.epoch or clips
    if epoch is None:
        raise RecipeError(
            "the length of the training set is unknown: give the clips (data=FOLDER) or what counts as an epoch "
            "(data.epoch=26600)"
        )
    if recipe.sampling.mirrored and t.frames % 2:
        raise RecipeError(
            f"training.frames is {t.frames}, and sampling.mirrored makes clips of frames and their mirror image: an "
            "even number is accepted"
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
            f"training.warmup.steps is {warmup.steps:,}, which does not end within the training's "
            f"{enlarged.total_steps:,} steps: give fewer, or none: training.warmup=null"
        )
    return enlarged


def plan_of(recipe: SuperresRecipe, clips: int | None = None, name: str | None = None) -> Plan:
    """The plan called `name`, by default the recipe's own.

    Args:
        recipe: The recipe.
        clips: Length of the training set.
        name: `constant`; `hierarchical`, `synchronous`, `spatial` or `temporal`, with `+scaled` for a batch that grows
            as the shape shrinks; `baseline`, the constant shape without the larger minibatch and the warm-up that
            comes with it; or `control:` and one of them. `@FACTOR` at the end sets the length.

    Raises:
        RecipeError: for an unknown name.
        PlanError: if the plan cannot be built.
    """
    name = recipe.plan if name is None else name
    nesting, scaled, is_control, length = _parts(name)
    if is_control:
        found = planning.control(_built(recipe, clips, nesting, 1.0, scaled=scaled), epoch_factor=length)
    else:
        found = _built(recipe, clips, nesting, length, scaled=scaled)
    return replace(found, mirrored=recipe.sampling.mirrored)


def _parts(name: str) -> tuple[str, bool, bool, float]:
    """What a plan's name says: the plan, whether its batch grows, whether its control is meant, and the length."""
    whole, at, factor = name.partition("@")
    base = whole.removeprefix(_CONTROL)
    nesting, scaled = base.removesuffix(_SCALED), base.endswith(_SCALED)
    if nesting not in PLAN_NAMES or (scaled and nesting not in NESTINGS):
        raise RecipeError(
            f"plan {name!r} is unknown{did_you_mean(nesting, PLAN_NAMES)}: {', '.join(PLAN_NAMES)}, or {_CONTROL}PLAN; "
            f"{_SCALED} after one of the last {len(NESTINGS)} makes the batch larger where the shape is smaller, "
            "@FACTOR at the end sets the length"
        )
    return nesting, scaled, base != whole, factor_of(factor, name) if at else 1.0


def _built(recipe: SuperresRecipe, clips: int | None, nesting: str, length: float, *, scaled: bool) -> Plan:
    """A plan that is no control."""
    if nesting == "baseline" and recipe.training.minibatch.factor > 1:
        update = {"minibatch": MinibatchSection(), "warmup": None}
        recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update=update)})
    baseline = baseline_of(recipe, clips)
    if nesting not in NESTINGS:
        return planning.constant(baseline, epoch_factor=length)
    options = getattr(recipe.plans, nesting)
    with named_by(nesting):
        return planning.superresolution(
            baseline,
            nesting=nesting,
            sizes=getattr(options, "sizes", None),
            frames=getattr(options, "frames", None),
            mirrored=recipe.sampling.mirrored,
            batch="scaled" if scaled else "constant",
            lr_scaling=options.lr_scaling,
            stage_lrs=options.stage_lrs,
            epoch_factor=length,
        )


def check_plan(recipe: SuperresRecipe, plan: Plan) -> None:
    """Check a plan against what the recipe's model needs. Needs no torch.

    Raises:
        PlanError: naming the stage and step of the first shape that the model cannot take.
        RecipeError: for an unknown model or option.
    """
    wanted = MODELS.needs_of(recipe.model)
    plan.require(wanted, recipe.model.name)
    if wanted.window is not None and recipe.sampling.mirrored:
        raise PlanError(
            f"model {recipe.model.name!r} takes windows of {wanted.window} frames, and sampling.mirrored makes clips "
            "of frames and their mirror image: false is accepted"
        )


def raw_frames(recipe: SuperresRecipe) -> int:
    """Frames of a source clip that the full shape takes."""
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
            raise RecipeError(f"training.{role} is given, and model {name} has no {what}: null is accepted")
        roles[role] = Role(multiplier=section.lr_factor, frozen_until=section.frozen_steps)
    return roles


def _warmup(section: FactorWarmupSection | None) -> FactorWarmup | None:
    return None if section is None else FactorWarmup(steps=section.steps, law=section.law, factor=section.factor)
