"""The base class of recipe sections, and their common field types."""

import inspect
import os
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

__all__ = [
    "Clips",
    "Frames",
    "PositiveFloat",
    "Seconds",
    "Section",
    "Side",
    "as_mapping",
    "ordered_fields",
]

_SMALLEST, _LARGEST = 1e-12, 1e12


def _divisible(number: float) -> float:
    """Refuse positive numbers that are too small: dividing by them overflows."""
    if 0 < number < _SMALLEST:
        raise PydanticCustomError("range", f"numbers from {_SMALLEST:g} to {_LARGEST:g} are accepted")
    return number


PositiveFloat = Annotated[float, Field(gt=0), AfterValidator(_divisible)]
Side = Annotated[int, Field(gt=0, le=16_384)]
"""Side of a picture in pixels."""
Frames = Annotated[int, Field(gt=0, le=65_536)]
"""Number of frames of a clip."""
Clips = Annotated[int, Field(gt=0, le=1_000_000)]
"""Number of clips held at a time."""
Seconds = Annotated[float, Field(ge=0.001, le=1e6)]
"""A timeout or interval."""


def _has_switch(value: object) -> bool:
    """Whether a value is true or false, or a list in which there is one."""
    return any(map(_has_switch, value)) if isinstance(value, list | tuple) else isinstance(value, bool)


def as_mapping(key: str) -> BeforeValidator:
    """Accept `section: value` as a shorthand for `section: {key: value}`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict | BaseModel) else {key: value})


class Section(BaseModel):
    """A section of a recipe. Unknown keys are refused; numbers may be text (YAML reads 1e-4 as text)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: object, info: ValidationInfo) -> object:
        """Refuse text that cannot be a path, and `on` and `yes`, which YAML reads as true and Python as 1."""
        if isinstance(value, str) and not _is_name(value):
            raise PydanticCustomError("not_text", "text must be valid in a file name: no NUL")
        if _has_switch(value) and "bool" not in str(cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("not_a_switch", "true and false are accepted only for switches")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _computable(cls, value: object) -> object:
        """Refuse absurdly large numbers, before they overflow far from here."""
        numbers = value if isinstance(value, tuple | list) else (value,)
        for number in numbers:
            if isinstance(number, float) and abs(number) > _LARGEST:
                raise PydanticCustomError("range", f"numbers up to {_LARGEST:g} are accepted")
            if type(number) is int and abs(number) >= 1 << 63:
                raise PydanticCustomError("range", "whole numbers below 2**63 are accepted")
        return value


def ordered_fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a section's fields by name, in reading order.

    A field that a subclass adds comes right after the field declared before it in that subclass.

    Example:
        >>> class Loading(Section):
        ...     workers: int = 2
        >>> class Data(Loading):
        ...     path: str = ""
        >>> list(ordered_fields(Data))
        ['path', 'workers']
    """
    names: list[str] = []
    for kind in reversed(section.__mro__):
        place = 0
        for name in inspect.get_annotations(kind):
            if name not in section.model_fields:
                continue
            if name not in names:
                names.insert(place, name)
            place = names.index(name) + 1
    return {name: section.model_fields[name] for name in names}


def _is_name(text: str) -> bool:
    """Return whether the operating system accepts a text as a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
