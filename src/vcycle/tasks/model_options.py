"""Validates model options: one class per model family declares types, ranges and defaults. Imports no torch.

Example:
    >>> class Options(ModelOptions):
    ...     widths: Wholes = (8, 16)
    ...     dropout: Share = 0.0
    >>> read_options(Options, "net", {"widths": [4, 8]})
    Options(widths=(4, 8), dropout=0.0)
    >>> read_options(Options, "net", {"dropout": 1})
    Traceback (most recent call last):
    vcycle.errors.RecipeError: option 'dropout' of model 'net' is 1; accepted: a number from 0 to below 1
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from vcycle.errors import RecipeError, did_you_mean
from vcycle.section import Section

__all__ = [
    "Accepted",
    "Counts",
    "Depth",
    "Depths",
    "Extents",
    "Kernel",
    "ModelOptions",
    "Odd",
    "Share",
    "Whole",
    "Wholes",
    "check_names",
    "check_per_stage",
    "options_error",
    "read_options",
]

_Options = TypeVar("_Options", bound=Section)


@dataclass(frozen=True)
class Accepted:
    """The accepted values of a type in words, as metadata of an ``Annotated`` type, for messages."""

    text: str


def _is_odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("even")
    return value


Whole = Annotated[int, Field(ge=1, le=65_536), Accepted("a whole number from 1 to 65,536")]
Wholes = Annotated[
    tuple[Whole, ...], Field(min_length=1, max_length=64), Accepted("a list of whole numbers from 1 to 65,536")
]
Depth = Annotated[int, Field(ge=1, le=1_000), Accepted("a whole number from 1 to 1,000")]
"""Number of layers or blocks."""
Depths = Annotated[
    tuple[Depth, ...], Field(min_length=1, max_length=64), Accepted("a list of whole numbers from 1 to 1,000")
]
Counts = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), Accepted("a list of whole numbers")]
Odd = Annotated[int, Field(ge=1), AfterValidator(_is_odd), Accepted("an odd whole number")]
Extents = Annotated[
    tuple[Odd | Annotated[tuple[Odd, ...], Field(min_length=1)], ...],
    Field(min_length=1),
    Accepted("a list with an odd whole number, or a list of them, for each stage"),
]
"""Temporal kernel size of each stage's convolutions; a list for a stage cycles through its blocks."""
Kernel = Annotated[tuple[Odd, Odd, Odd], Accepted("three odd whole numbers")]
Share = Annotated[float, Field(ge=0, lt=1), Accepted("a number from 0 to below 1")]


class ModelOptions(Section):
    """Base class of the options of a model family: one field per option, with its default.

    Types are strict: 2.0 is not a whole number and 1 is not true. Lists become tuples.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _lists_to_tuples(cls, data: Any) -> Any:
        return {key: _as_tuples(value) for key, value in data.items()} if isinstance(data, Mapping) else data

    @classmethod
    def of(cls, model: str, options: Mapping[str, Any]) -> Any:
        """Validate options given directly to a model; see :func:`read_options`."""
        return read_options(cls, model, options)


def read_options(kind: type[_Options], model: str, given: Mapping[str, Any]) -> _Options:
    """Validate options against their class.

    Args:
        kind: The options class of the model.
        model: The model's name, for messages.
        given: Values by name, as in a recipe.

    Raises:
        RecipeError: if an option is unknown or has an invalid value, or options contradict each other; names the
            first.
    """
    check_names(model, given, kind.model_fields)
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        fault = error.errors()[0]
        if not fault["loc"]:
            raise RecipeError(f"model {model!r}: {fault['msg'].removeprefix('Value error, ')}") from None
        option = str(fault["loc"][0])
        accepted = _accepted_by(kind, option) or fault["msg"][:1].lower() + fault["msg"][1:]
        raise RecipeError(
            f"option {option!r} of model {model!r} is {given.get(option)!r}; accepted: {accepted}"
        ) from None


def check_names(model: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that a model does not have.

    Raises:
        RecipeError: if an option is unknown; names it, a suggestion, and all accepted options.
    """
    known = list(known)
    for option in given:
        if option not in known:
            accepted = ", ".join(known) or "none"
            raise RecipeError(
                f"option {option!r} of model {model!r} is unknown{did_you_mean(option, known)}; accepted: {accepted}"
            )


def check_per_stage(**lists: Sequence[object] | None) -> None:
    """Check that per-stage lists have equal lengths; for a ``model_validator``. None, the default, fits any length.

    Raises:
        PydanticCustomError: if they do not.
    """
    given = {name: values for name, values in lists.items() if values is not None}
    if len({len(values) for values in given.values()}) > 1:
        *others, last = (f"{name} {tuple(values)}" for name, values in given.items())
        raise options_error(f"{', '.join(others)} and {last} differ in length; accepted: one value per stage in each")


def options_error(text: str) -> PydanticCustomError:
    """Build an error for options that contradict each other; for a ``model_validator``."""
    return PydanticCustomError("options", "{text}", {"text": text})


def _accepted_by(kind: type[Section], option: str) -> str | None:
    field = kind.model_fields[option]
    for part in field.metadata:
        if isinstance(part, Accepted):
            return part.text
    return _words(field.annotation)


def _words(annotation: Any) -> str | None:
    """The accepted values of an annotation in words; None if unknown."""
    if annotation is bool:
        return "true or false"
    if annotation is str:
        return "a name"
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    for part in get_args(annotation):
        found = part.text if isinstance(part, Accepted) else _words(part)
        if found is not None:
            return found
    return None


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list | tuple) else value
