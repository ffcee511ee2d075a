"""Merges a recipe with its `base`: a recipe with a base lists only what differs from it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vcycle.errors import RecipeError
from vcycle.utils.reading import read_yaml, resolved

__all__ = ["MAIN_KEYS", "Written", "resolve"]

MAIN_KEYS = {
    "data": "path",
    "model": "name",
    "init": "path",
    "optimizer": "name",
    "decay": "law",
    "erasing": "probability",
}
"""Sections that accept the value of their main key as a shorthand: `data=FOLDER`."""

_DEPENDENT = {"model": ("options", "needs"), "decay": ("milestones", "gamma", "factors", "floor")}
"""Keys that belong to one value of the main key: changing it resets them."""


class Written(NamedTuple):
    """A recipe before parsing."""

    text: str
    """YAML."""
    source: str
    """Where the text comes from, for messages."""
    folder: Path | None
    """The folder that a path in `base` is relative to; None if the base must be a shipped recipe."""


def resolve(written: Written, find: Callable[[str, Path | None], Written]) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge a recipe with its bases, and record the source of each value.

    Sections are merged key by key, recursively. Any other value, including a list, replaces the value of the base.
    Changing the model resets its options; changing the LR schedule resets its milestones.

    Args:
        written: The recipe.
        find: Finds a base by name or path; called with the base and the folder that a path is relative to.

    Returns:
        The data, without `base`, and the source of each value by its dotted key.

    Raises:
        RecipeError: if a text is not a recipe, or a base is missing or circular.
    """
    chain = [written]
    while True:
        data = _read(chain[-1])
        named = data.get("base")
        if named is None:
            break
        if not isinstance(named, str):
            raise RecipeError(f"{chain[-1].source}: key 'base' is {named!r}: must be the name or path of a recipe")
        try:
            base = find(named, chain[-1].folder)
        except RecipeError as error:
            raise RecipeError(f"{chain[-1].source}: key 'base': {error}") from None
        if _identity(base) in map(_identity, chain):
            way = " → ".join(known.source for known in (*chain, base))
            raise RecipeError(f"{written.source}: key 'base' is circular: {way}")
        chain.append(base)
    data, sources = {}, dict[str, str]()
    for recipe in reversed(chain):
        own = {key: value for key, value in _read(recipe).items() if key != "base"}
        data = merged(data, own)
        sources |= {key: recipe.source for key in _leaves(own)}
    return data, sources


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a section of a recipe into that of its base."""
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
    """Expand the shorthand of a section, the value of its main key, to a section."""
    if key not in MAIN_KEYS or value is None or isinstance(value, Mapping):
        return value
    return {MAIN_KEYS[key]: value}


def _identity(written: Written) -> str | Path:
    """The identity of a recipe, whatever the spelling of its path."""
    return written.source if written.folder is None else resolved(Path(written.source))


def _read(written: Written) -> dict[str, Any]:
    try:
        data = read_yaml(written.text)
    except ValueError as error:
        raise RecipeError(f"{written.source}: not valid YAML: {error}") from None
    if data is None:
        raise RecipeError(f"{written.source}: the file is empty; a recipe is a mapping of sections")
    if not isinstance(data, dict):
        raise RecipeError(f"{written.source}: a recipe is a mapping of sections, got {type(data).__name__}")
    return data


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of all values that are not sections."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
