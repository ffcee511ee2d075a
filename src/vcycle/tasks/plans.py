"""Plans by name: `PLAN`, `control:PLAN`, either with `@FACTOR` at the end. Needs no torch.

A task registers its plans; `control:` (the constant shape under a plan's LR schedule) and `@FACTOR` (the length) work
with each of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from vcycle import plan as planning
from vcycle.errors import PlanError, RecipeError, did_you_mean
from vcycle.plan import Baseline, Plan
from vcycle.registry import Registry
from vcycle.section import Section

if TYPE_CHECKING:
    from vcycle.config.recipe import RecipeBase

__all__ = [
    "CONSTANT",
    "CONTROL",
    "PlanName",
    "PlanSpec",
    "build_plan",
    "check_names",
    "check_sections",
    "control_name",
    "parse_name",
]

CONTROL = "control:"
CONSTANT = ("constant", "baseline")
"""Plans of one shape, which have no control."""


@dataclass(frozen=True, kw_only=True)
class PlanSpec:
    """A plan that recipes can name."""

    build: Callable[[Any, Baseline, Any, float | None], Plan]
    """Makes it of the recipe, its baseline, the options, and the length that its name gives, if it does."""
    section: str
    """Where the recipe's `plans` has its options."""
    options: type[Section] | None = None
    """The schema of its options, where the task's own `plans` section does not list them."""


class PlanName(NamedTuple):
    """What a plan's name says."""

    base: str
    """The registered plan."""
    is_control: bool
    factor: float | None
    """The length that the name gives, in lengths of the baseline."""


def parse_name(plans: Registry[PlanSpec], name: str) -> PlanName:
    """Read a plan's name.

    Raises:
        RecipeError: if there is no such plan, naming those that there are.
    """
    whole, at, factor = name.partition("@")
    base = whole.removeprefix(CONTROL)
    if base not in plans:
        known = plans.names()
        raise RecipeError(
            f"plan {name!r} is unknown{did_you_mean(base, known)}: {', '.join(known)}, or {CONTROL}PLAN; "
            "@FACTOR at the end sets its length"
        )
    return PlanName(base, base != whole, _factor(factor, name) if at else None)


def check_names(plans: Registry[PlanSpec], names: Iterable[str]) -> None:
    """Check that there are plans of these names, before any data is looked for.

    Raises:
        RecipeError: for the first that there is not.
    """
    for name in names:
        parse_name(plans, name)


def control_name(name: str) -> str:
    """The name of a plan's LR-matched control, whatever the plan's length; `PLAN+scaled` shares that of `PLAN`.

    Example:
        >>> control_name("hierarchical+scaled@2")
        'control:hierarchical'
    """
    return CONTROL + name.partition("@")[0].removesuffix("+scaled")


def build_plan(plans: Registry[PlanSpec], recipe: "RecipeBase", baseline: Baseline, name: str) -> Plan:
    """The plan of that name.

    Raises:
        RecipeError: for an unknown name.
        PlanError: if the plan cannot be built, naming the recipe's section of its options.
    """
    base, is_control, factor = parse_name(plans, name)
    spec = plans[base]
    options = options_of(spec, recipe)
    try:
        if not is_control:
            return spec.build(recipe, baseline, options, factor)
        length = factor if factor is not None else getattr(options, "control_epoch_factor", None) or 1.0
        return planning.control(spec.build(recipe, baseline, options, None), epoch_factor=length)
    except PlanError as error:
        said = str(error)
        raise PlanError(said if said.startswith("plan ") else f"plans.{spec.section}: {said}") from error


def options_of(spec: PlanSpec, recipe: "RecipeBase") -> Any:
    """The options of a plan: the recipe's section of them, or defaults."""
    found = getattr(recipe.plans, spec.section, None)
    if spec.options is None or isinstance(found, spec.options):
        return found
    try:
        return spec.options.model_validate(found or {})
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(("plans", spec.section, *map(str, fault["loc"])))
        raise RecipeError(f"key {key!r} is {fault['input']!r}: {fault['msg'][:1].lower()}{fault['msg'][1:]}") from None


def check_sections(plans: Registry[PlanSpec], recipe: "RecipeBase") -> None:
    """Check the options of registered plans, and refuse options of plans that there are not.

    Raises:
        RecipeError: naming the key.
    """
    specs = {spec.section: spec for spec in (plans[name] for name in plans)}
    for section in recipe.plans.model_extra or {}:
        if section not in specs:
            known = [*type(recipe.plans).model_fields, *(name for name, spec in specs.items() if spec.options)]
            raise RecipeError(
                f"unknown key {f'plans.{section}'!r}{did_you_mean(section, known)}; known here: {', '.join(known)}"
            )
        options_of(specs[section], recipe)


def _factor(text: str, name: str) -> float:
    """The number after the @ of a plan's name."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise RecipeError(f"plan {name!r}: the epoch factor {text!r} after @ must be a number above 0")
    return value
