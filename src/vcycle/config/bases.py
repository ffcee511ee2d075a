"""Recipes that name another as their `base` and say only what differs from it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vcycle.errors import RecipeError
from vcycle.utils.reading import read_yaml, resolved

__all__ = ["MAIN_KEYS", "Written", "resolve"]

MAIN_KEYS = {"data": "path", "model": "name", "init": "path", "optimizer": "name", "decay": "law"}
"""Sections that may be written as the value of their main key alone: `data=FOLDER`."""

_DEPENDENT = {"model": ("options", "needs"), "decay": ("milestones", "gamma", "factors", "floor")}
"""Keys that belong to one value of the main key, and are laid aside with it."""


class Written(NamedTuple):
    """A recipe as it is written."""

    text: str
    """YAML."""
    source: str
    """Where it came from, for messages."""
    folder: Path | None
    """Where the path of its base starts; none where only shipped recipes can be meant."""


def resolve(written: Written, find: Callable[[str, Path | None], Written]) -> tuple[dict[str, Any], dict[str, str]]:
    """The recipe's data over that of its bases, and where each value came from.

    A section is merged key by key, at any depth; anything else, a list too, replaces what the base has. Options belong
    to one model and milestones to one law: naming another lays them aside.

    Args:
        written: The recipe.
        find: Finds a base by its name or path, given the folder that a path starts from.

    Returns:
        The data, without `base`, and the source of each value by its dotted key.

    Raises:
        RecipeError: if a text is no recipe, or a base is not there or leads back to where it was named.
    """
    chain = [written]
    while True:
        data = _read(chain[-1])
        named = data.get("base")
        if named is None:
            break
        if not isinstance(named, str):
            raise RecipeError(
                f"{chain[-1].source}: key 'base' is {named!r}: the name or the path of a recipe is accepted"
            )
        try:
            base = find(named, chain[-1].folder)
        except RecipeError as error:
            raise RecipeError(f"{chain[-1].source}: key 'base': {error}") from None
        if _identity(base) in map(_identity, chain):
            way = " → ".join(known.source for known in (*chain, base))
            raise RecipeError(f"{written.source}: key 'base' goes round in a circle: {way}")
        chain.append(base)
    data, sources = {}, dict[str, str]()
    for recipe in reversed(chain):
        own = {key: value for key, value in _read(recipe).items() if key != "base"}
        data = merged(data, own)
        sources |= {key: recipe.source for key in _leaves(own)}
    return data, sources


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A section of a recipe over that of its base."""
    result = dict(base)
    for key, value in own.items():
        below, above = _whole(key, base.get(key)), _whole(key, value)
        if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
            result[key] = value
            continue
        main = MAIN_KEYS.get(key)
        if main is not None and above.get(main, below.get(main)) != below.get(main):
            below = {name: kept for name, kept in below.items() if name not in _DEPENDENT.get(key, ())}
        result[key] = merged(below, above)
    return result


def _whole(key: str, value: Any) -> Any:
    """A section that is written as its main value alone, as a section."""
    if key not in MAIN_KEYS or value is None or isinstance(value, Mapping):
        return value
    return {MAIN_KEYS[key]: value}


def _identity(written: Written) -> str | Path:
    """One value for each recipe, however the way to its file is written."""
    return written.source if written.folder is None else resolved(Path(written.source))


def _read(written: Written) -> dict[str, Any]:
    try:
        data = read_yaml(written.text)
    except ValueError as error:
        raise RecipeError(f"{written.source}: not valid YAML: {error}") from None
    if data is None:
        raise RecipeError(f"{written.source}: the file is empty; a recipe is a mapping of sections")
    if not isinstance(data, dict):
        raise RecipeError(f"{written.source}: a recipe is a mapping of sections, this is {type(data).__name__}")
    return data


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of all values that are no sections."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
