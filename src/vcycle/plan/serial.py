"""Converts plans to plain data and back: dataclasses become JSON objects tagged with their kind."""

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from vcycle.errors import PlanError

__all__ = ["SAVED", "UNLESS_DEFAULT", "decode", "encode"]

SAVED = "saved"
"""The metadata of a field that says whether it is encoded; True by default."""
UNLESS_DEFAULT = "unless default"
"""Encode a field unless it has its default: plans from before there was such a field keep their JSON."""

_TOO_LARGE = 1 << 63


def encode(value: object) -> Any:
    """Convert a dataclass to an object with its class name under `kind`, and tuples to lists.

    Equal values give the same data: 239.0 becomes 239.
    """
    if is_dataclass(value) and not isinstance(value, type):
        named = {f.name: encode(getattr(value, f.name)) for f in fields(value) if _is_saved(f, value)}
        return {"kind": type(value).__name__} | named
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {k: encode(v) for k, v in value.items()}
    return value


def _is_saved(one: Field[Any], value: object) -> bool:
    saved = one.metadata.get(SAVED, True)
    return bool(saved) and not (saved == UNLESS_DEFAULT and getattr(value, one.name) == one.default)


def decode(data: Any, kinds: Mapping[str, Callable[..., Any]]) -> Any:
    """Undo `encode`.

    Args:
        data: The encoded data.
        kinds: The dataclasses that it may contain, by name.

    Raises:
        PlanError: for an unknown kind, fields that do not fit it, or numbers that are not finite or too large.
    """
    if (isinstance(data, float) and not math.isfinite(data)) or (type(data) is int and abs(data) >= _TOO_LARGE):
        raise PlanError(f"a plan holds the number {reprlib.repr(data)}; finite numbers below 2**63 are accepted")
    if isinstance(data, list):
        return tuple(decode(v, kinds) for v in data)
    if not isinstance(data, dict):
        return data
    kind = data.get("kind")
    if not isinstance(kind, str):
        return {k: decode(v, kinds) for k, v in data.items()}
    if kind not in kinds:
        raise PlanError(f"unknown kind {kind!r} in a plan: {', '.join(sorted(kinds))}")
    values = {k: decode(v, kinds) for k, v in data.items() if k != "kind"}
    hints = _hints(kinds[kind])
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            raise PlanError(f"{kind} in a plan does not fit: its {name} is {reprlib.repr(value)}")
    try:
        return kinds[kind](**values)
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise PlanError(f"{kind} in a plan does not fit: {error}") from None


@cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type of a field; integers are valid floats."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, inner[1]) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint
