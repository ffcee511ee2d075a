"""Schemas of the run files that a page reads: files may be damaged, or written by other programs."""

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


class _Numbers(_Kind):
    """Results of an evaluation; PSNR is infinite if all frames equal the ground truth."""

    map: float | None = None
    top1: float | None = None
    psnr: float | None = None
    bicubic_psnr: float | None = None


class _Validation(_Kind):
    """A line of a log about a validation."""

    seconds: _Amount
    evaluation: _Numbers


class _SlowData(_Kind):
    """A line of a log about waiting for data."""

    message: str


class Replaced(_Kind):
    """A line of a journal of replaced samples."""

    path: str
    cause: str


class Environment(_Kind):
    """A line about a run's environment."""

    step: _Count
    command: str
    folder: str


class Evaluated(_Numbers):
    """A result file of `vcycle eval`."""

    split: str
    protocol: str


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
