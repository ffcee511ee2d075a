"""Schemas of the run files that a page reads: files may be damaged, or written by other programs."""

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from vcycle.tasks.base import measures

__all__ = ["Environment", "Evaluated", "Replaced", "Stage", "fault", "kind_of"]

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Amount = Annotated[float, Field(ge=0, le=2**53)]
_Loss = Annotated[float, Field(ge=-1e300, le=1e300)]


class _Kind(BaseModel):
    """Required keys; others are allowed."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Event(_Kind):
    """Any line of a log."""

    event: str


class _Step(_Kind):
    """A line of a log about a step."""

    step: _Count
    frames: _Count
    size: _Count
    batch: _Count
    lr: _Amount
    seconds: _Amount
    data_seconds: _Amount
    memory_mib: _Count
    loss: _Loss | str | None = None


_MEASURED = [key for one in measures().values() for key in (one.key, one.reference_key) if key]
_NUMBERS: dict[str, Any] = {key: (float | None, None) for key in _MEASURED}
"""Results of an evaluation; they may be infinite."""

_Numbers = create_model("_Numbers", __base__=_Kind, **_NUMBERS)
_Validation = create_model("_Validation", __base__=_Kind, seconds=(_Amount, ...), evaluation=(_Numbers, ...))
"""A line of a log about a validation."""
Evaluated = create_model("Evaluated", __base__=_Numbers, split=(str, ...), protocol=(str, ...))
"""A result file of `vcycle eval`."""


class _SlowData(_Kind):
    """A line of a log about waiting for data."""

    message: str
    wait: str | None = None
    advice: str | None = None


class Replaced(_Kind):
    """A line of a journal of replaced samples."""

    path: str
    cause: str


class Environment(_Kind):
    """A line about a run's environment."""

    step: _Count
    command: str
    folder: str


class Stage(_Kind):
    """A stage of a plan."""

    name: str
    steps: _Count
    frames: _Count
    size: _Count
    batch: _Count


_EVENTS: Mapping[str, type[_Kind]] = {"step": _Step, "validation": _Validation, "slow_data": _SlowData}


def kind_of(line: Mapping[str, Any]) -> type[BaseModel]:
    """The schema of a log line."""
    event = line.get("event")
    return _EVENTS.get(event, _Event) if isinstance(event, str) else _Event


def fault(kind: type[BaseModel], found: Mapping[str, Any]) -> str | None:
    """Describe the first schema violation: the key, its value and what is accepted; None if the data is valid."""
    try:
        kind.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            return f"key {key!r} is missing"
        return f"key {key!r} is {reprlib.repr(first['input'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return None
