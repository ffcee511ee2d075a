"""Builds plans by name: `PLAN`, `control:PLAN`, either with a suffix `@FACTOR`. Imports no torch.

A task registers its plans; `control:` (the constant shape under a plan's LR schedule) and `@FACTOR` (the length) work
with each of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from vcycle import plan as planning
from vcycle.errors import PlanError, RecipeError, did_you_mean, user_code
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
"""Plans of constant shape, which have no control."""


@dataclass(frozen=True, kw_only=True)
class PlanSpec:
    """A registered plan."""

    build: Callable[[Any, Baseline, Any, float | None], Plan]
    """Builds the plan. Called with the recipe, its baseline, the options, and the length from the name or None."""
    section: str
    """The key of its options in the recipe's `plans` section."""
    options: type[Section] | None = None
    """The schema of its options, if the task's `plans` section does not define them."""


class PlanName(NamedTuple):
    """A parsed plan name."""

    base: str
    """The registered plan."""
    is_control: bool
    factor: float | None
    """The length from the name, in lengths of the baseline; None without `@`."""


def parse_name(plans: Registry[PlanSpec], name: str) -> PlanName:
    """Parse a plan's name.

    Raises:
        RecipeError: if the plan does not exist; lists those that do.
    """
    whole, at, factor = name.partition("@")
    base = whole.removeprefix(CONTROL)
    if base not in plans:
        known = plans.names()
        raise RecipeError(
            f"plan {name!r} is unknown{did_you_mean(base, known)}: {', '.join(known)}, or {CONTROL}PLAN; "
            "a suffix @FACTOR sets its length"
        )
    return PlanName(base, base != whole, _factor(factor, name) if at else None)


def check_names(plans: Registry[PlanSpec], names: Iterable[str]) -> None:
    """Check that the plans exist, before any data is read.

    Raises:
        RecipeError: for the first plan that does not exist.
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
    """Build the plan of that name.

    Raises:
        RecipeError: for an unknown name.
        PlanError: if the plan cannot be built; names the section of its options.
    """
    base, is_control, factor = parse_name(plans, name)
    spec = plans[base]
    options = options_of(spec, recipe)
    try:
        with user_code(f"plan {base!r} cannot be built", spec.build):
            built = spec.build(recipe, baseline, options, None if is_control else factor)
        if not isinstance(built, Plan):
            raise RecipeError(f"plan {base!r} was built as {type(built).__name__}; accepted: a vcycle.Plan")
        if not is_control:
            return built
        length = factor if factor is not None else getattr(options, "control_epoch_factor", None) or 1.0
        return planning.control(built, epoch_factor=length)
    except PlanError as error:
        said = str(error).replace(": the model cannot take", f": model {recipe.model.name!r} cannot take")
        raise PlanError(said if said.startswith("plan ") else f"plans.{spec.section}: {said}") from error


def options_of(spec: PlanSpec, recipe: "RecipeBase") -> Any:
    """The options of a plan from the recipe, or the defaults."""
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
    """Check the options of registered plans, and refuse options of unknown plans.

    Raises:
        RecipeError: if an option is wrong or a section is unknown; names the key.
    """
    specs = {spec.section: spec for spec in (plans[name] for name in plans)}
    for section in recipe.plans.model_extra or {}:
        if section not in specs:
            known = [*type(recipe.plans).model_fields, *(name for name, spec in specs.items() if spec.options)]
            raise RecipeError(
                f"unknown key {f'plans.{section}'!r}{did_you_mean(section, known)}; known here: {', '.join(known)}"
            )
        if specs[section].options is None and not hasattr(type(recipe.plans), section):
            raise RecipeError(f"unknown key {f'plans.{section}'!r}: the plan has no options")
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
