"""Checks that a run resumes with the recipe, plan and data that it started with."""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from vcycle.config.recipe import RecipeBase
from vcycle.errors import CheckpointError, PlanError, RecipeError, did_you_mean
from vcycle.plan import Plan
from vcycle.runs.left_out import dead_in, read_object
from vcycle.tasks.base import Splits, tasks
from vcycle.tasks.recipes import dump_recipe, load_recipe, recipe_text
from vcycle.train.run import RunFolder
from vcycle.utils.atomic import atomic_text
from vcycle.utils.reading import read_text

__all__ = ["how_others", "prepare_run_folder", "refuse_missing_run"]

_FREE = (
    "description",
    # The data itself is compared; how it is loaded does not change the result.
    *("data.path", "data.val", "data.test", "data.workers", "data.timeout", "data.prefetch"),
    "plans",  # the resulting plan is compared
    *("run.device", "run.validate_every", "run.save_every", "run.bad_limit", "run.loggers", "run.fit", "run.threads"),
    *("run.bad_steps", "run.watchdog", "run.compile", "run.graphs", "run.shard", "run.validate_stage_shape"),
)
"""Keys that a resume may change in any task, beside `Task.free_keys`: they change neither the training nor its
validations."""


def prepare_run_folder(run: RunFolder, recipe: RecipeBase, plan: Plan, splits: Splits[Any], *, resume: bool) -> bool:
    """Create a run folder and record its recipe, plan and data; or check that the run resumes with the same ones.

    Args:
        run: The run.
        recipe: The recipe of the run.
        plan: The plan from the recipe.
        splits: The data of the recipe.
        resume: Whether the run may resume.

    Returns:
        Whether it resumes.

    Raises:
        CheckpointError: if the run started with others; names the first difference.
        VcycleError: as in `RunFolder.prepare`.
    """
    found = {"train": splits.train.digest(), "val": splits.val.digest()}
    if not run.prepare(plan, dump_recipe(recipe), resume=resume, classes=splits.classes or None):
        for split, digest in found.items():
            digest.update({"left_out": dead} if (dead := dead_in(splits[split])) else {})
        atomic_text(run.videos, json.dumps(found, indent=1) + "\n")
        return False
    _refuse_others(run, recipe, plan, found)
    # Record the recipe that it resumes with, such as the new path of its data.
    if run.recipe.is_file() and read_text(run.recipe) != (now := dump_recipe(recipe)):
        atomic_text(run.recipe, now)
    return True


def _refuse_others(run: RunFolder, recipe: RecipeBase, plan: Plan, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to resume a run with another recipe, plan or data.

    Data is compared by labels and by names relative to its folder or list, so that it may move. File contents are not
    compared.

    Args:
        run: The run; missing records are not compared.
        recipe: The recipe to resume with.
        plan: The plan from the recipe.
        found: Digests of the recipe's data, by split.

    Raises:
        CheckpointError: if something differs; names the first difference.
    """
    own = load_recipe(str(run.path)) if run.recipe.is_file() else recipe
    remedy = f"resume with the run's own recipe ({run.recipe}), or choose another --out"
    free = (*_FREE, *tasks[own.task].free_keys)
    changed = [difference for difference in _differences(own, recipe) if not _is_free(difference[0], free)]
    if changed:
        raise CheckpointError(f"{run.path} was started with {_told(changed)}: {remedy}")
    if run.videos.is_file():
        started = read_object(run.videos)
        for split, digest in found.items():
            if (how := how_others(started.get(split), digest)) is not None:
                raise CheckpointError(
                    f"{run.path} was started with other {split} data than data.path {recipe.data.path}: {how}; the "
                    f"run used {own.data.path}: give that data, or choose another --out"
                )
    if run.plan.is_file() and (started_under := _plan_in(run.plan)) != plan:
        options = [difference for difference in _differences(own, recipe) if difference[0].startswith("plans.")]
        if options:
            raise CheckpointError(f"{run.path} was started with {_told(options)}: {remedy}")
        raise CheckpointError(
            f"{run.path} was started with plan {started_under.name} {started_under.fingerprint}, but this recipe "
            f"gives {plan.name} {plan.fingerprint}: {remedy}"
        )


def refuse_missing_run(name: str) -> None:
    """Refuse to resume a run that does not exist. Shipped recipes and recipe files are allowed.

    Raises:
        RecipeError: if there is no such run or recipe; suggests existing runs.
    """
    if Path(name).is_file() or RunFolder(Path(name)).recipe.is_file():
        return
    with contextlib.suppress(RecipeError):
        recipe_text(name)
        return
    runs = sorted(str(folder.parent) for folder in Path("runs").glob("*/recipe.yaml"))
    there = f"; existing runs: {', '.join(runs[:5])}{', ...' if len(runs) > 5 else ''}" if runs else ""
    raise RecipeError(f"{name}: no run to resume: a run folder has a recipe.yaml{did_you_mean(name, runs)}{there}")


def _differences(own: RecipeBase, other: RecipeBase) -> Iterator[tuple[str, Any, Any]]:
    """Keys in which two recipes differ, with both values."""
    ours, theirs = (dict(_flat(recipe.model_dump(mode="json", by_alias=True))) for recipe in (own, other))
    for key in dict.fromkeys([*theirs, *ours]):
        if ours.get(key) != theirs.get(key):
            yield key, ours.get(key), theirs.get(key)


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif not (isinstance(value, Mapping) or value is None):  # an absent section has no keys
            yield prefix + key, value


def _is_free(key: str, free: Collection[str]) -> bool:
    return any(f"{key}.".startswith(f"{name}.") for name in free)


def _told(changed: list[tuple[str, Any, Any]]) -> str:
    key, had, has = changed[0]
    more = (
        f" (and {len(changed) - 1} more keys)" if len(changed) > 2 else f" (and {changed[1][0]})" if changed[1:] else ""
    )
    return f"{key} {_value(had)}, not {_value(has)}{more}"


def _value(value: Any) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value)


def how_others(started: Any, now: Mapping[str, Any]) -> str | None:
    """Describe how the items of a split differ, by their digests; None if they are the same or not recorded."""
    if not isinstance(started, Mapping):
        return None
    differ = {key: (had, value) for key, value in now.items() if (had := started.get(key)) != value}
    for key, (had, value) in differ.items():
        if isinstance(value, int):
            return f"found {value:,} {key}, the run has {f'{had:,}' if isinstance(had, int) else repr(had)}"
    return f"their {' and '.join(differ)} differ" if differ else None


def _plan_in(path: Path) -> Plan:
    try:
        return Plan.from_json(read_text(path))
    except (OSError, UnicodeDecodeError, PlanError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
