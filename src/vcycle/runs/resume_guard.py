"""A run that goes on: by the recipe and on the videos that it was begun with, or not at all."""

import contextlib
import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcycle.data.layouts import VideoList
from vcycle.errors import CheckpointError, PlanError, RecipeError, did_you_mean
from vcycle.plan import Plan
from vcycle.tasks.recipes import AnyRecipe, dump_recipe, load_any, recipe_text
from vcycle.train.run import RunFolder, write_small

if TYPE_CHECKING:
    from vcycle.tasks.superres.pairs.layouts import ClipPairs

__all__ = ["enter", "refuse_missing_run"]

_FREE = (
    "description",
    # Which videos these give is compared itself; how they are loaded changes nothing.
    *("data.path", "data.layout", "data.fold", "data.val", "data.test", "data.root", "data.clips", "data.val_fraction"),
    "data.low",
    *("data.workers", "data.timeout", "data.prefetch"),
    "plans",  # what they make of the chosen plan is compared itself
    # Of an evaluation, what only the one after training takes: validations are one curve, of one protocol.
    *("evaluation.clips", "evaluation.crops", "evaluation.combine"),
    *("run.device", "run.validate_every", "run.save_every", "run.bad_limit", "run.loggers", "run.fit"),
    *("run.bad_steps", "run.watchdog", "run.compile", "run.graphs", "run.shard", "run.validate_stage_shape"),
)
"""Keys that a resume may change: none of them changes what is learned, or how it is measured meanwhile."""


def enter(
    run: RunFolder,
    recipe: AnyRecipe,
    plan: Plan,
    videos: "Mapping[str, VideoList | ClipPairs]",
    *,
    text: str | None,
    resume: bool,
    classes: Sequence[str] | None = None,
) -> bool:
    """Make a run's folder and write down what is begun and on which videos, or see that a run goes on as it was begun.

    Args:
        run: The run.
        recipe: What it is to be carried out by.
        plan: The plan that this gives.
        videos: The videos that this gives, by split.
        text: The recipe, as it is written beside the run.
        resume: Whether the run may go on.
        classes: Names of the classes.

    Returns:
        Whether it goes on.

    Raises:
        CheckpointError: if it was begun with anything else, naming the first difference.
        VcycleError: as `RunFolder.prepare`.
    """
    if not run.prepare(plan, text, resume=resume, classes=classes):
        shown = {split: _digests(found) for split, found in videos.items()}
        write_small(run.videos, json.dumps(shown, indent=1) + "\n")
        return False
    _refuse_others(run, recipe, plan, videos)
    # By what it goes on, such as where its videos lie now.
    if run.recipe.is_file() and run.recipe.read_text(encoding="utf-8") != (now := dump_recipe(recipe)):
        write_small(run.recipe, now)
    return True


def _refuse_others(
    run: RunFolder, recipe: AnyRecipe, plan: Plan, videos: "Mapping[str, VideoList | ClipPairs]"
) -> None:
    """Refuse to go on with a run by anything but what it was begun with.

    Videos are compared by their names below the folder or list that they are found in, and by their labels: they may
    have moved. Their contents are not looked at.

    Args:
        run: The run; one that wrote nothing down is not compared.
        recipe: What it is to go on by.
        plan: The plan that this gives.
        videos: The videos that this gives, by split.

    Raises:
        CheckpointError: naming the first difference.
    """
    own = load_any(str(run.path)) if run.recipe.is_file() else recipe
    remedy = f"resume with the run's own recipe ({run.recipe}), or choose another --out"
    changed = [found for found in _differences(own, recipe) if not _is_free(found[0])]
    if changed:
        raise CheckpointError(f"{run.path} was begun with {_told(changed)}: {remedy}")
    if run.videos.is_file():
        begun = _read(run.videos)
        for split, found in videos.items():
            if (how := _how_others(begun.get(split), _digests(found))) is not None:
                raise CheckpointError(
                    f"{run.path} was begun on other {split} videos than those of data.path {recipe.data.path}: {how}; "
                    f"its own are those of {own.data.path}"
                )
    if run.plan.is_file() and (begun_under := _plan_in(run.plan)) != plan:
        options = [found for found in _differences(own, recipe) if found[0].startswith("plans.")]
        if options:
            raise CheckpointError(f"{run.path} was begun with {_told(options)}: {remedy}")
        raise CheckpointError(
            f"{run.path} was begun under plan {begun_under.name} {begun_under.fingerprint}, and this recipe gives "
            f"{plan.name} {plan.fingerprint}: {remedy}"
        )


def refuse_missing_run(name: str) -> None:
    """Refuse to go on with a run that is not there; anything else that a recipe may be is let through.

    Raises:
        RecipeError: naming a run that may be meant.
    """
    if Path(name).is_file() or RunFolder(Path(name)).recipe.is_file():
        return
    with contextlib.suppress(RecipeError):
        recipe_text(name)
        return
    runs = sorted(str(folder.parent) for folder in Path("runs").glob("*/recipe.yaml"))
    there = f"; there are {', '.join(runs[:5])}{', ...' if len(runs) > 5 else ''}" if runs else ""
    raise RecipeError(f"{name}: no run to go on with: its folder has a recipe.yaml{did_you_mean(name, runs)}{there}")


def _differences(own: AnyRecipe, other: AnyRecipe) -> Iterator[tuple[str, Any, Any]]:
    """Keys in which two recipes differ, with the value of each."""
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


def _is_free(key: str) -> bool:
    return any(f"{key}.".startswith(f"{free}.") for free in _FREE)


def _told(changed: list[tuple[str, Any, Any]]) -> str:
    key, had, has = changed[0]
    more = (
        f" (and {len(changed) - 1} more keys)" if len(changed) > 2 else f" (and {changed[1][0]})" if changed[1:] else ""
    )
    return f"{key} {_value(had)}, not {_value(has)}{more}"


def _value(value: Any) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value)


def _digests(videos: "VideoList | ClipPairs") -> dict[str, Any]:
    """What names the videos of a split, wherever they lie."""
    if not isinstance(videos, VideoList):
        shown = json.dumps([list(videos.high.names), videos.low is not None, str(videos.degradation)])
        return {"videos": len(videos), "names": hashlib.sha256(shown.encode()).hexdigest()[:16]}
    names, labels = hashlib.sha256(), hashlib.sha256(json.dumps(videos.classes).encode())
    for name in videos.paths:
        names.update(name.encode("utf-8", "surrogateescape") + b"\0")
    for values in (videos.labels, videos.label_starts, videos.label_spans, videos.spans):
        labels.update(f"{len(values)}:".encode() + array("d", values).tobytes())
    return {"videos": len(videos), "names": names.hexdigest()[:16], "labels": labels.hexdigest()[:16]}


def _how_others(begun: Any, now: Mapping[str, Any]) -> str | None:
    """In what the videos of a split differ, in words; None where they are the same."""
    if not isinstance(begun, Mapping) or begun == now:
        return None
    had = begun.get("videos")
    if had != now["videos"]:
        return f"{now['videos']:,} of them, where the run has {f'{had:,}' if isinstance(had, int) else repr(had)}"
    what = [name for name in ("names", "labels") if begun.get(name) != now.get(name)]
    return f"their {' and '.join(what)} differ"


def _plan_in(path: Path) -> Plan:
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PlanError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    return found if isinstance(found, Mapping) else {}
