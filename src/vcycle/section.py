"""What every section of a recipe is: plain values under known keys."""

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

__all__ = ["Section", "as_mapping"]


def as_mapping(key: str) -> BeforeValidator:
    """Let `section: value` stand for `section: {key: value}`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict | BaseModel) else {key: value})


class Section(BaseModel):
    """A part of a recipe. Unknown keys are refused; a number may be written as text (YAML reads 1e-4 as text)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `on` and `yes` as true, which Python counts as 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("not_a_switch", "true and false are accepted only by switches")
        return value
