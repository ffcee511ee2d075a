"""What every section of a recipe is: plain values under known keys."""

import os
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "Clips",
    "Frames",
    "PositiveFloat",
    "Seconds",
    "Section",
    "Side",
    "as_mapping",
]

_SMALLEST, _LARGEST = 1e-12, 1e12


def _divisible(number: float) -> float:
    """Refuse what is above 0 only on paper: quotients with it overflow."""
    if 0 < number < _SMALLEST:
        raise PydanticCustomError("range", f"numbers from {_SMALLEST:g} to {_LARGEST:g} are accepted")
    return number


PositiveFloat = Annotated[float, Field(gt=0), AfterValidator(_divisible)]
Side = Annotated[int, Field(gt=0, le=16_384)]
"""A side of a picture in pixels."""
Frames = Annotated[int, Field(gt=0, le=65_536)]
"""Frames of a clip."""
Clips = Annotated[int, Field(gt=0, le=1_000_000)]
"""Clips that are held at a time."""
Seconds = Annotated[float, Field(ge=0.001, le=1e6)]
"""A time to wait."""


def as_mapping(key: str) -> BeforeValidator:
    """Let `section: value` stand for `section: {key: value}`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict | BaseModel) else {key: value})


class Section(BaseModel):
    """A part of a recipe. Unknown keys are refused; a number may be written as text (YAML reads 1e-4 as text)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: object, info: ValidationInfo) -> object:
        """Refuse text that no system takes as a path, and `on` and `yes`, which YAML reads as true and Python as 1."""
        if isinstance(value, str) and not _is_name(value):
            raise PydanticCustomError("not_text", "text that a file's name may have is accepted: no NUL")
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("not_a_switch", "true and false are accepted only by switches")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _computable(cls, value: object) -> object:
        """Refuse numbers that are not given in earnest, before something far from here overflows with them."""
        numbers = value if isinstance(value, tuple | list) else (value,)
        for number in numbers:
            if isinstance(number, float) and abs(number) > _LARGEST:
                raise PydanticCustomError("range", f"numbers up to {_LARGEST:g} are accepted")
            if type(number) is int and abs(number) >= 1 << 63:
                raise PydanticCustomError("range", "whole numbers below 2**63 are accepted")
        return value


def _is_name(text: str) -> bool:
    """Whether the system takes a text as a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
