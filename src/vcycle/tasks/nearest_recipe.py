"""Writes a recipe as the differences from the nearest shipped one."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from vcycle.errors import RecipeError
from vcycle.tasks.recipes import load_recipe, parse_recipe, recipe_names

__all__ = ["as_yaml", "count_keys", "merged", "nested", "over_nearest", "without_tuples"]

_OTHER_MODEL = 10
"""How many keys another model counts as."""


def over_nearest(task: str, wanted: Mapping[str, Any], sets: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """The shipped recipe from which a recipe differs in the fewest keys, and these; None if none is near.

    Options of plans that are not set are those of the base.

    Args:
        task: The task of the recipe.
        wanted: All values of the recipe.
        sets: Those that are set, by dotted key.
    """
    options = nested(dict.fromkeys(key for key in sets if key.startswith("plans."))).get("plans", {})
    wanted = {**wanted, "plans": _shared(wanted["plans"], options)}
    plain = {"description": wanted["description"], **nested(sets)}
    candidates = [
        (name, _differences(wanted, _with_plans_of(wanted, _shipped(name))))
        for name in recipe_names(task)
        if not name.startswith("demo/")
    ]
    for name, own in sorted(candidates, key=_distance):
        if count_keys(plain) <= count_keys(own):
            break
        if (found := _completed({"base": name}, own, wanted)) is not None:
            return name, found
    return None, _completed({}, plain, wanted) or plain


def _completed(base: Mapping[str, str], own: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The keys over a base that give the wanted recipe, from those that differ at first; None if none do."""
    for _ in range(3):  # another value may reset others, such as the options of the model
        try:
            got = parse_recipe(as_yaml({**base, **own}), "the recipe").model_dump(mode="json", by_alias=True)
        except RecipeError:
            return None
        missing = _differences(wanted, _with_plans_of(wanted, got))
        if not missing:
            return own
        own = merged(own, missing)
    return None


@cache
def _shipped(name: str) -> dict[str, Any]:
    """The values of a shipped recipe."""
    return load_recipe(name).model_dump(mode="json", by_alias=True)


def _with_plans_of(wanted: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a recipe, of its plans those that are wanted."""
    return {**data, "plans": _shared(data["plans"], wanted["plans"])}


def _distance(candidate: tuple[str, Mapping[str, Any]]) -> int:
    """How far a recipe is from its base: its keys, and more if even the model is another one."""
    own = candidate[1]
    return count_keys(own) + (_OTHER_MODEL if "model" in own else 0)


def _shared(data: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The part of nested mappings whose keys are wanted."""
    return {
        key: _shared(data[key], inner) if isinstance(inner, Mapping) and isinstance(data[key], Mapping) else data[key]
        for key, inner in wanted.items()
        if key in data
    }


def _differences(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, Any]:
    """The keys to set over `got`."""
    found: dict[str, Any] = {key: None for key in got if key not in wanted}
    for key, value in wanted.items():
        below = got.get(key)
        if value == below and key in got:
            continue
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            found[key] = _differences(value, below)
        else:
            found[key] = value
    return found


def count_keys(data: Mapping[str, Any]) -> int:
    """The number of keys that a recipe sets."""
    return len(list(_leaves(data)))


def _leaves(data: Mapping[str, Any]) -> Iterator[Any]:
    for value in data.values():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value)
        else:
            yield value


def nested(sets: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested sections."""
    found: dict[str, Any] = {}
    for key, value in sets.items():
        *sections, last = key.split(".")
        node = found
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    return found


def merged(base: Any, own: Any) -> Any:
    """Merge mappings key by key, recursively; any other value replaces that of the base."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return {**base, **{key: merged(base.get(key), value) for key, value in own.items()}}


def as_yaml(data: Mapping[str, Any]) -> str:
    """A recipe as YAML."""
    return yaml.safe_dump(without_tuples(data), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def without_tuples(value: Any) -> Any:
    """Tuples as lists, at any depth."""
    if isinstance(value, Mapping):
        return {key: without_tuples(inner) for key, inner in value.items()}
    return [without_tuples(inner) for inner in value] if isinstance(value, list | tuple) else value
