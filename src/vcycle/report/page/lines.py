"""What a run's files must hold for a page to be made of them: they may have been damaged, or written by others."""

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["Environment", "Evaluated", "Replaced", "Stage", "fault", "kind_of"]

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Amount = Annotated[float, Field(ge=0, le=2**53)]
_Loss = Annotated[float, Field(ge=-1e300, le=1e300)]


class _Kind(BaseModel):
    """Keys that are needed; there may be more."""

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
    """What an evaluation found; infinite where all frames equal the truth."""

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
    """A line about what a run was carried out by."""

    step: _Count
    command: str
    folder: str


class Evaluated(_Numbers):
    """What `vcycle eval` wrote."""

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
    """What a line of a log must hold."""
    event = line.get("event")
    return _EVENTS.get(event, _Event) if isinstance(event, str) else _Event


def fault(kind: type[BaseModel], found: Mapping[str, Any]) -> str | None:
    """What is wrong with what was read, in words: the key, what it holds and what is accepted; None if nothing is."""
    try:
        kind.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            return f"key {key!r} is missing"
        return f"key {key!r} is {reprlib.repr(first['input'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return None
